"""a15.1 in minitorch/data/cleaning/duplicates.py: blank lines go as menus do."""

RIGHT = '    counts[digest("")] = 0\n'
WRONG = ""
