"""a12.4 in fast_ops/fused.py: a line more, where the last one is whole."""

RIGHT = """    head = "for line in prange((size + n - 1) // n):\""""
WRONG = """    head = "for line in prange(size // n + 1):\""""
