"""a17.1 in minitorch/rounding.py: numbers beyond the last step stay there."""

RIGHT = "np.clip(np.round(w / np.where(scale > 0, scale, 1)), -largest, largest)"
WRONG = "np.round(w / np.where(scale > 0, scale, 1))"
