"""a15.2 in minitorch/data/cleaning/duplicates.py: the last run is left out."""

RIGHT = "for i in range(last + 1)}"
WRONG = "for i in range(max(last, 1))}"
