"""a12.5 in fast_ops/fused.py: a long line is cut anywhere."""

RIGHT = "    return n // next(k for k in parts if n % k == 0)"
WRONG = "    return n // parts[0]"
