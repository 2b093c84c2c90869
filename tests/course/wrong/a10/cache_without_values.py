"""a10.3 in minitorch/models/gpt.py: what the cache returns is not looked at."""

RIGHT = "            k, v = cache.write(layer, cat([k, v], 1))\n"
WRONG = "            cache.write(layer, cat([k, v], 1))\n"
