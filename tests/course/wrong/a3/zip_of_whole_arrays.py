"""a3.1 in fast_ops/elementwise.py: fn is called with whole arrays, by one thread."""

RIGHT = """
        for i in prange(out.size):
            out[i] = fn(a[i], b[i])
"""

WRONG = """
        found = fn(a, b)
        out[:] = found
"""
