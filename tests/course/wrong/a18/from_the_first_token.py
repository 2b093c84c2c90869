"""a18.3 in minitorch/serving/cache.py: positions begin at 0 for each text."""

RIGHT = "np.repeat(firsts + counts - counts.cumsum(), counts)"
WRONG = "np.repeat(counts - counts.cumsum(), counts)"
