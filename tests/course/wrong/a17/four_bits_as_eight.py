"""a17.1 in minitorch/quantization.py: 127 steps, however many bits there are."""

RIGHT = "largest / most"

WRONG = "largest / 127"
