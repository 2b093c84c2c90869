"""a13.5 in minitorch/distributed/pipelining/schedules.py: each rank begins with one
forward pass more."""

RIGHT = "    ahead = [stages - rank - 1 for rank in range(stages)]"
WRONG = "    ahead = [stages - rank for rank in range(stages)]"
