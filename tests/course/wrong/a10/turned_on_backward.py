"""a10.3 in minitorch/functions/rotary.py: the gradient is turned on, not back."""

RIGHT = "return Rotary.apply(grad, cos, -sin), None, None"
WRONG = "return Rotary.apply(grad, cos, sin), None, None"
