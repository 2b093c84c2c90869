"""a11.6 in cuda_ops/ladders/attention.py: keys that do not exist have weights."""

RIGHT = "if j >= S or (causal and j > i):"
WRONG = "if causal and j > i:"
