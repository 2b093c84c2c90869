"""a12.3 in fast_ops/fused.py: every result lies in memory."""

RIGHT = "            if a >= 0 and not program.steps[a].per_row and levels[a] != level:"
WRONG = "            if a >= 0 and not program.steps[a].per_row:"
