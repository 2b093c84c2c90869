"""a8.3 in fast_ops/norm.py: all blocks on one core."""

RIGHT = "    for task in prange(blocks):"
WRONG = "    for task in range(blocks):"
