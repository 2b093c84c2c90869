"""a10.5 in minitorch/models/generation.py: the token that reaches p is left out."""

RIGHT = "outside = shares.cumsum(-1) - shares >= self.top_p  # without its own share"
WRONG = "outside = shares.cumsum(-1) >= self.top_p"
