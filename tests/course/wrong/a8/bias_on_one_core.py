"""a8.1 in fast_ops/linear.py: all rows on one core."""

RIGHT = "        for r in prange(x.size // n):"
WRONG = "        for r in range(x.size // n):"
