"""a14.6 in sums.py: the ratio is 1 in each epoch."""

RIGHT = "            wrote.log_probs,\n"
WRONG = "            log_probs,\n"
