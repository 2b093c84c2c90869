"""a18.5 in minitorch/models/speculative.py: what is made too often is drawn as well."""

RIGHT = "np.maximum(large[i] - small[i], 0.0)"
WRONG = "np.abs(large[i] - small[i])"
