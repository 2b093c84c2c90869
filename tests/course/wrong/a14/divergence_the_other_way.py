"""a14.5 in minitorch/alignment.py: d has the other sign."""

RIGHT = "(reference_log_probs.detach() - log_probs)"
WRONG = "(log_probs - reference_log_probs.detach())"
