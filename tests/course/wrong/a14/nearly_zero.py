"""a14.4 in minitorch/alignment.py: equal rewards have what rounding leaves over."""

RIGHT = "return above.masked_fill(equal, 0.0)"
WRONG = "return above"
