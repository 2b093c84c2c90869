"""a13.1 in minitorch/distributed/classroom.py: what comes takes the place of what is
there."""

RIGHT = "        part.copy_(combine(came, part))"
WRONG = "        part.copy_(came)"
