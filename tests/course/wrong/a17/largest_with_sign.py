"""a17.3 in minitorch/nn/sparse.py: the largest two, with their signs."""

RIGHT = "weight.detach().abs().reshape"
WRONG = "weight.detach().reshape"
