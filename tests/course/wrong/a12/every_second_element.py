"""a12.5 in fast_ops/fused.py: a column ends within a line."""

RIGHT = "    return m > 0 and n >= SHORT and (m if d == 1 else d) % n == 0"
WRONG = "    return m > 0 and n >= SHORT and (m * d) % n == 0"
