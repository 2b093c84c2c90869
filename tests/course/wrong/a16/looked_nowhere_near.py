"""a16.3 in minitorch/scaling.py: minima outside of what was tried count."""

RIGHT = "if sizes.min() <= best <= sizes.max():"
WRONG = "if best:"
