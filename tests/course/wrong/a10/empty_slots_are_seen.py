"""a10.6 in minitorch/models/cache.py: a token sees slots that nobody has written."""

RIGHT = "(queries.unsqueeze(1) >= keys)"
WRONG = "(queries.unsqueeze(1) >= keys.clamp(max=0))"
