"""a17.4 in minitorch/rounding.py: the scales grow with the feedback."""

RIGHT = "q[:, k] = nearest(w[:, k], scale, largest)"
WRONG = """\
scale = np.maximum(scale, np.abs(w).max(1) / largest)
        q[:, k] = nearest(w[:, k], scale, largest)"""
