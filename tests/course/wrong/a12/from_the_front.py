"""a12.1 in minitorch/backend/fusion.py: whoever takes a step has not been looked at."""

RIGHT = "    for k in reversed(range(len(steps))):"
WRONG = "    for k in range(len(steps)):"
