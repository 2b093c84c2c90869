"""a12.3 in minitorch/backend/fusion.py: only one argument counts."""

RIGHT = "            before = [found[a] for a in step.args if a >= 0]"
WRONG = "            before = [found[a] for a in step.args[-1:] if a >= 0]"
