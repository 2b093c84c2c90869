"""a13.6 in minitorch/distributed/planner/memory.py: stage 1 deals out gradients,
too."""

RIGHT = "self.gradients / (ranks if zero >= 2 else 1)"
WRONG = "self.gradients / (ranks if zero >= 1 else 1)"
