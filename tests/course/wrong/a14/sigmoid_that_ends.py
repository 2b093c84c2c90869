"""a14.3 in minitorch/alignment.py: log of a sigmoid that is 0."""

RIGHT = "-F.logsigmoid(beta * (gained - lost)).mean()"
WRONG = "-(beta * (gained - lost)).sigmoid().log().mean()"
