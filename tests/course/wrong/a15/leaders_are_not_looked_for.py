"""a15.3 in minitorch/data/cleaning/duplicates.py: a pair joins two items."""

RIGHT = "low, high = sorted((first(i), first(j)))"
WRONG = "low, high = sorted((i, j))"
