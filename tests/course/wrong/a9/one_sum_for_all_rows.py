"""a9.4 in mojo_ops/matmul.mojo: the rows of a tile share their sums."""

RIGHT = """
                    comptime at = i * vectors + j
"""
WRONG = """
                    comptime at = j
"""
