"""a15.2 in minitorch/data/cleaning/duplicates.py: digits are no words."""

RIGHT = "c if c.isalnum() else"
WRONG = "c if c.isalpha() else"
