"""a17.2 in minitorch/nn/utils/prune.py: the given mask is changed."""

RIGHT = "default_mask.flatten().clone()"
WRONG = "default_mask.view(-1)"
