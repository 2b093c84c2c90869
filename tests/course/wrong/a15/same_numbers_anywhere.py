"""a15.2 in minitorch/data/cleaning/duplicates.py: entries are compared as sets."""

RIGHT = "return float((one == other).mean())"
WRONG = "return len({*one.tolist()} & {*other.tolist()}) / len(one)"
