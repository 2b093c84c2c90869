"""a18.5 in minitorch/models/speculative.py: a guess stays with p instead of p / q."""

RIGHT = "if uniform() * small[i, token] >= large[i, token]:"
WRONG = "if uniform() >= large[i, token]:"
