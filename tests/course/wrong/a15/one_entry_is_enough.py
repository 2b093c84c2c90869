"""a15.3 in minitorch/data/cleaning/duplicates.py: one row of a band."""

RIGHT = "for i, band in enumerate(table[:, start : start + rows].tolist()):"
WRONG = "for i, band in enumerate(table[:, start : start + 1].tolist()):"
