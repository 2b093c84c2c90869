"""a10.6 in minitorch/models/cache.py: a padded text begins at its slot, not at 0."""

RIGHT = "        positions = (positions - first).clamp(min=0)\n"
WRONG = ""
