"""a13.1 in minitorch/distributed/classroom.py: neighbours of a group are counted
among all ranks."""

RIGHT = "(self.ranks[(self.me + d) % self.n] for d in (1, -1))"
WRONG = "((self.me + d) % self.n for d in (1, -1))"
