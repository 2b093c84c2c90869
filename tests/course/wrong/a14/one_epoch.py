"""a14.6 in sums.py: one step, however many are asked for."""

RIGHT = "for _ in range(epochs):"
WRONG = "for _ in range(1):"
