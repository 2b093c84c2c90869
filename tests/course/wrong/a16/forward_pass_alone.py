"""a16.1 in minitorch/scaling.py: what the forward pass takes."""

RIGHT = "return 6 * N * D"
WRONG = "return 2 * N * D"
