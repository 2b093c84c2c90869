"""a15.6 in crawl.py: what is wanted goes."""

RIGHT = "[1] * len(wanted) + [0] * len(unwanted)"
WRONG = "[0] * len(wanted) + [1] * len(unwanted)"
