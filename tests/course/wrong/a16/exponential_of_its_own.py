"""a16.4 in minitorch/scaling.py: the sum of exponentials, which become infinite."""

RIGHT = "found = lines.logsumexp(0)"
WRONG = "found = lines.exp().sum(0).log()"
