"""a16.4 in minitorch/scaling.py: the others less the first line have exponentials."""

RIGHT = "lines.logsumexp(0)"

WRONG = "lines[0] + (lines - lines[0]).exp().sum(0).log()"
