"""a16.2 in minitorch/scaling.py: x is drawn again, and y stays."""

RIGHT = "fit_power_law(x[p], y[p])"
WRONG = "fit_power_law(x[p], y)"
