"""a11.2 in fast_ops/attention.py: logsumexp lacks the maximum."""

RIGHT = "logsumexp[q] = top[q] + log(total[q])"
WRONG = "logsumexp[q] = log(total[q])"
