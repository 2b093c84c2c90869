"""a15.2 in minitorch/data/cleaning/duplicates.py: short texts have no shingle."""

RIGHT = "    last = max(len(words) - n, 0)\n"
WRONG = "    last = len(words) - n\n"
