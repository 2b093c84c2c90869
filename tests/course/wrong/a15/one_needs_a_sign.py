"""a15.4 in minitorch/data/cleaning/masks.py: 1 without + or a sign behind it."""

RIGHT = "(?:\\+?1[-. ]?)?"
WRONG = "(?:\\+1[-. ]?|1[-. ])?"
