"""a17.1 in minitorch/quantization.py: steps are cut off, not rounded."""

RIGHT = ".round().clamp("
WRONG = ".trunc().clamp("
