"""a10.6 in minitorch/models/cache.py: tokens see the padding."""

RIGHT = "        mask = mask & (keys >= first).unsqueeze(1).unsqueeze(1)\n"
WRONG = ""
