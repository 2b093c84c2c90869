"""a18.5 in minitorch/models/speculative.py: weights are taken for probabilities."""

RIGHT = "uniform() * ends[-1]"
WRONG = "min(uniform(), ends[-1] - 1e-9)"
