"""a11.6 in cuda_ops/attention/composed.py: hides the key of the query's place."""

RIGHT = "LOWEST if causal and j > i else"
WRONG = "LOWEST if causal and j >= i and j > 0 else"
