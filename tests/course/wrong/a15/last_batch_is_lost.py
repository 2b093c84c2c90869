"""a15.5 in minitorch/data/cleaning/classifier.py: a batch that is not full."""

RIGHT = "for i in range(0, len(one), batch)"
WRONG = "for i in range(0, len(one) - batch + 1, batch)"
