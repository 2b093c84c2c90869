"""a16.4 in minitorch/scaling.py: the law is compared with a logarithm."""

RIGHT = "found = lines.logsumexp(0)"
WRONG = "found = lines.logsumexp(0).exp()"
