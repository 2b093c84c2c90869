"""a15.4 in minitorch/data/cleaning/masks.py: a point that stands for any sign."""

RIGHT = "(?:\\.{byte}){{3}}"
WRONG = "(?:.{byte}){{3}}"
