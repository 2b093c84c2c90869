"""a12.4 in fast_ops/fused.py: a last line that is short is none."""

RIGHT = """    head = "for line in prange((size + n - 1) // n):\""""
WRONG = """    head = "for line in prange(max(1, size // n)):\""""
