"""a15.1 in minitorch/data/cleaning/duplicates.py: known only right behind."""

RIGHT = "        seen.add(key)"
WRONG = "        seen = {key}"
