"""a17.4 in minitorch/rounding.py: the factor of X^T X is inverted, which is lower."""

RIGHT = "np.linalg.cholesky(np.linalg.inv(h)).T"
WRONG = "np.linalg.inv(np.linalg.cholesky(h))"
