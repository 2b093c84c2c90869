"""a17.4 in minitorch/rounding.py: errors are not divided by the diagonal."""

RIGHT = "lost = (w[:, k] - scale * q[:, k]) / factor[k, k]"
WRONG = "lost = w[:, k] - scale * q[:, k]"
