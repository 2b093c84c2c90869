"""a12.3 in fast_ops/fused.py: a number a row has an array as long as a row."""

RIGHT = "            if a >= 0 and not program.steps[a].per_row and levels[a] != level:"
WRONG = "            if a >= 0 and levels[a] != level:"
