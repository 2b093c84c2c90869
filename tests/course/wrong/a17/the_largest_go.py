"""a17.2 in minitorch/nn/utils/prune.py: the largest are dropped."""

RIGHT = "topk(count, largest=False)"
WRONG = "topk(count)"
