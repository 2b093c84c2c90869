"""a17.5 in minitorch/distillation.py: alpha is the share of the labels."""

RIGHT = "alpha * temperature**2 * soft + (1 - alpha) * hard"
WRONG = "(1 - alpha) * temperature**2 * soft + alpha * hard"
