"""a7.3 in fast_ops/sparse.py: all tasks on one core."""

RIGHT = "    for number in prange(blocks * tasks):"
WRONG = "    for number in range(blocks * tasks):"
