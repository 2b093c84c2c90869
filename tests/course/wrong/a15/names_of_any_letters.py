"""a15.4 in minitorch/data/cleaning/masks.py: names of words' letters, with "_"."""

RIGHT = "(?:[A-Za-z0-9-]+\\.)+"
WRONG = "(?:[\\w-]+\\.)+"
