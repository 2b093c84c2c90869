"""a17.3 in minitorch/nn/sparse.py: places in the row, not in the four."""

RIGHT = "F.pad(columns % 4,"
WRONG = "F.pad(columns,"
