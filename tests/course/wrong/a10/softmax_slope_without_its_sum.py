"""a10.2 in minitorch/functions/attention.py: dS is P * dP, without what all lose."""

RIGHT = "slope = (slope - weights * slope.sum(-1, keepdim=True)) * scale"
WRONG = "slope = slope * scale"
