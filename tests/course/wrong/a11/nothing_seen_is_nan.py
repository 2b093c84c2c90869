"""a11.1 in fast_ops/attention.py: NaN where nothing is seen yet."""

RIGHT = "less[q] = top[q] if top[q] > -np.inf else 0"
WRONG = "less[q] = top[q]"
