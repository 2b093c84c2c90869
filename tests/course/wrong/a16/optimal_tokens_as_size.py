"""a16.5 in minitorch/scaling.py: the exponents of N and D are exchanged."""

RIGHT = "(self.beta / both)"
WRONG = "(self.alpha / both)"
