"""a3.3 in fast_ops/matmul.py: blocks overlap by a row, which two threads make."""

RIGHT = """
        last = min(first + 32, M)
"""

WRONG = """
        last = min(first + 33, M)
"""
