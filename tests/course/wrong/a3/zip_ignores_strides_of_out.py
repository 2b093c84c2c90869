"""a3.1 in fast_ops/elementwise.py: the elements of out are taken for neighbours."""

RIGHT = "elif sa == 1 and sb == 0 and so == 1:"
WRONG = "elif sa == 1 and sb == 0:"
