"""a14.5 in minitorch/alignment.py: who has gone too far cannot come back."""

RIGHT = "minimum(ratio * by, ratio.clamp(1 - clip, 1 + clip) * by)"
WRONG = "(ratio.clamp(1 - clip, 1 + clip) * by)"
