"""a9.2 in mojo_ops/matmul.mojo: columns that fill no whole vector are left at 0."""

RIGHT = """
        for n in range(whole, p.N):
            row[n] += left * right[n]
"""
WRONG = """
        for n in range(whole, whole):
            row[n] += left * right[n]
"""
