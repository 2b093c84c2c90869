"""a16.5 in forecast.py: what these runs came to, whatever the rows are."""

RIGHT = "return float(law(N, D))"
WRONG = "return 1.5927 if N < 20_000 else 1.5791"
