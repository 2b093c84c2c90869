"""a17.3 in minitorch/nn/sparse.py: the smallest are kept with their places."""

RIGHT = "values = weight.flatten()[columns]"
WRONG = "values = weight.flatten()[columns].sort(1).values"
