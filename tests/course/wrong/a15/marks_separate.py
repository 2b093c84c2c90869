"""a15.2 in minitorch/data/cleaning/duplicates.py: an accent cuts its word in two."""

RIGHT = '    kept = [c for c in plain if not unicodedata.category(c).startswith("M")]\n'
WRONG = "    kept = list(plain)\n"
