"""a16.4 in minitorch/scaling.py: the last end is taken, not the smallest."""

RIGHT = "if end < least:"
WRONG = "if end == end:"
