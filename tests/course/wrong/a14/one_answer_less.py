"""a14.4 in minitorch/alignment.py: the deviation of a sample, over G - 1."""

RIGHT = "correction=0"
WRONG = "correction=1"
