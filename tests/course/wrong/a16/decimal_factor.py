"""a16.2 in minitorch/scaling.py: the factor stays a logarithm."""

RIGHT = "math.exp(v.mean() - exponent * u.mean())"
WRONG = "v.mean() - exponent * u.mean()"
