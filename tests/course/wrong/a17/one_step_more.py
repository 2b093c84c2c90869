"""a17.1 in minitorch/quantization.py: -128 to 127, as bytes can hold."""

RIGHT = "scale = largest / "
WRONG = "scale = largest * (127 / 127.5) / "
