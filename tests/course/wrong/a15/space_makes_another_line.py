"""a15.1 in minitorch/data/cleaning/duplicates.py: an indented menu is another line."""

RIGHT = "counts[digest(line.strip())] <= times"
WRONG = "counts[digest(line)] <= times"
