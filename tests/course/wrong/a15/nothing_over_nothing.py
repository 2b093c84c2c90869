"""a15.5 in minitorch/data/cleaning/classifier.py: a text without words is NaN."""

RIGHT = "[[float(max(n, 1))] for n in counts]"
WRONG = "[[float(n)] for n in counts]"
