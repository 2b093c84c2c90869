"""a12.5 in fast_ops/fused.py: each line meets the row's first numbers."""

RIGHT = """            yield f"q{k} = p // d{k} % m{k}\""""
WRONG = """            yield f"q{k} = 0\""""
