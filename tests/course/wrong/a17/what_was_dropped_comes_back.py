"""a17.2 in minitorch/nn/utils/prune.py: the mask before is forgotten."""

RIGHT = "default_mask.flatten().clone()"
WRONG = "default_mask.flatten() * 0 + 1"
