"""a17.1 in minitorch/quantization.py: one scale for the whole matrix."""

RIGHT = "scale = largest / "
WRONG = "scale = (largest * 0 + largest.amax()) / "
