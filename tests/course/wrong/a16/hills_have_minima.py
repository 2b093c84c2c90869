"""a16.3 in minitorch/scaling.py: the top of a hill is a minimum."""

RIGHT = "if square <= 0:"
WRONG = "if square == 0:"
