"""a17.5 in minitorch/distillation.py: the soft part shrinks with the temperature."""

RIGHT = "alpha * temperature**2 * soft"
WRONG = "alpha * soft"
