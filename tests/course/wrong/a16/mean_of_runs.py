"""a16.4 in minitorch/scaling.py: the mean of the runs."""

RIGHT = 'reduction="sum"'
WRONG = 'reduction="mean"'
