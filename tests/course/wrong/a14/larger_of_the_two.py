"""a14.5 in minitorch/alignment.py: the larger of the two, written with a minimum."""

RIGHT = "losses = -minimum(ratio * by, ratio.clamp(1 - clip, 1 + clip) * by)"
WRONG = "losses = minimum(-ratio * by, -ratio.clamp(1 - clip, 1 + clip) * by)"
