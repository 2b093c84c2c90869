"""a13.1 in minitorch/distributed/classroom.py: the part that comes is the one after."""

RIGHT = "        comes = ring.me - i - 1"
WRONG = "        comes = ring.me - i + 1"
