"""a14.5 in minitorch/alignment.py: long answers have a larger share."""

RIGHT = "(sums / mask.to(sums.dtype).sum(1).clamp(min=1)).mean()"
WRONG = "sums.sum() / mask.to(sums.dtype).sum().clamp(min=1)"
