"""a15.5 in minitorch/data/cleaning/classifier.py: no shorter runs."""

RIGHT = "for length in range(1, self.n + 1)"
WRONG = "for length in range(self.n, self.n + 1)"
