"""a12.4 in fast_ops/fused.py: a fold of a short line reads what is no part of it."""

RIGHT = """            row = f"z{a}[:w]" if a >= 0 else f"x{~a}s\""""
WRONG = """            row = f"z{a}" if a >= 0 else f"x{~a}s\""""
