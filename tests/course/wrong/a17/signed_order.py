"""a17.2 in minitorch/nn/utils/prune.py: the smallest numbers, with their signs."""

RIGHT = "t.abs().flatten().topk"
WRONG = "t.flatten().topk"
