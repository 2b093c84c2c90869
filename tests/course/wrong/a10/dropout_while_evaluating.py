"""a10.3 in minitorch/models/gpt.py: weights of attention are dropped in evaluation."""

RIGHT = "            self.p if self.training else 0.0,\n"
WRONG = "            self.p,\n"
