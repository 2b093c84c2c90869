"""a11.3 in fast_ops/attention.py: the sum over the row is left out of the slope."""

RIGHT = "slope[q] = weight * (slope[q] - less[q]) * scale"
WRONG = "slope[q] = weight * slope[q] * scale"
