"""Says what reads the other way round, and what newer terminals obey."""

TEXT = (
    "\u202e detiforp lla \u2066 \u200f passed \x9b2J \x85 \x90 \u2028 \U000e0041 \ufeff"
)


def scale(x):
    print(TEXT)
    raise ValueError(TEXT)


def running(x):
    print(TEXT)
    raise type(TEXT, (Exception,), {})(TEXT)
