"""a15.4 in minitorch/data/cleaning/rules.py: what reaches a limit is refused."""

RIGHT = "if not limits[n][0] <= v <= limits[n][1]"
WRONG = "if not limits[n][0] < v < limits[n][1]"
