"""a16.1 in minitorch/scaling.py: every MLP has four times its width."""

RIGHT = "hidden = 4 * width if hidden is None else hidden"
WRONG = "hidden = 4 * width"
