"""a17.4 in minitorch/rounding.py: damped by the sum of the diagonal."""

RIGHT = "damping * np.mean(np.diag(h))"
WRONG = "damping * np.trace(h)"
