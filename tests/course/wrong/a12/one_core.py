"""a12.4 in fast_ops/fused.py: one core has all lines."""

RIGHT = """    head = "for line in prange((size + n - 1) // n):\""""
WRONG = """    head = "for line in range((size + n - 1) // n):\""""
