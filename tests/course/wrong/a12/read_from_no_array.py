"""a12.4 in fast_ops/fused.py: results of the same level are read from memory."""

RIGHT = (
    "            elif a >= 0 and levels[a] != level and not program.steps[a].per_row:"
)
WRONG = "            elif a in stored:"
