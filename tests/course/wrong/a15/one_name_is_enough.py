"""a15.4 in minitorch/data/cleaning/masks.py: nothing has to follow the last point."""

RIGHT = "[A-Za-z]{{2,}}(?![\\w-])"
WRONG = "[A-Za-z]*(?![\\w-])"
