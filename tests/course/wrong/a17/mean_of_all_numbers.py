"""a17.5 in minitorch/distillation.py: the mean over rows and classes."""

RIGHT = 'reduction="batchmean"'
WRONG = 'reduction="mean"'
