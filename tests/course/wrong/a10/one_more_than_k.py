"""a10.5 in minitorch/models/generation.py: k + 1 tokens may be drawn."""

RIGHT = "best = scores.topk(self.top_k, -1).values"
WRONG = "best = scores.topk(self.top_k + 1, -1).values"
