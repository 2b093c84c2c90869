"""a17.4 in minitorch/rounding.py: the other triangle."""

RIGHT = "np.linalg.cholesky(np.linalg.inv(h)).T"
WRONG = "np.linalg.cholesky(np.linalg.inv(h))"
