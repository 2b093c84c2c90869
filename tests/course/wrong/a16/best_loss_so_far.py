"""a16.5 in forecast.py: the best loss so far."""

RIGHT = "return float(law(N, D))"
WRONG = 'return float(min(rows["loss"]))'
