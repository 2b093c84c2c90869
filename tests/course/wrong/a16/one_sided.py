"""a16.2 in minitorch/scaling.py: all that is left out lies on one side."""

RIGHT = "[(1 - level) / 2, (1 + level) / 2]"
WRONG = "[1 - level, 1.0]"
