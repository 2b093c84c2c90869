"""a16.1 in minitorch/scaling.py: an MLP without units has the usual ones."""

RIGHT = "4 * width if hidden is None else hidden"

WRONG = "hidden or 4 * width"
