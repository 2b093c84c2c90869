"""a8.1 in minitorch/functions/linear.py: the bias's gradient has no gradient."""

RIGHT = "            if grad_mode.enabled:\n                grad_bias"
WRONG = "            if False:\n                grad_bias"
