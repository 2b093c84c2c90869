"""a14.5 in minitorch/alignment.py: exp of NaN, times 0 afterwards."""

RIGHT = "(log_probs - old_log_probs.detach()).masked_fill(off, 0.0).exp()"
WRONG = "(log_probs - old_log_probs.detach()).exp()"
