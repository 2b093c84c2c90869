"""a10.2 in minitorch/functions/attention.py: a query does not see its own key."""

RIGHT = "seen = scores.new_ones(scores.shape[-2:]).tril() > 0"
WRONG = "seen = scores.new_ones(scores.shape[-2:]).tril(-1) > 0"
