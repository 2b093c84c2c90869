"""a17.4 in minitorch/rounding.py: damped by the same for all sizes of inputs."""

RIGHT = "damping * np.mean(np.diag(h))"
WRONG = "damping"
