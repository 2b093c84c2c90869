"""a12.5 in fast_ops/fused.py: a column is taken for a row."""

RIGHT = """            yield f"x{k} = x{k}_[p // d{k} % m{k}]\""""
WRONG = """            yield f"x{k} = x{k}_[p % m{k}]\""""
