"""a17.2 in minitorch/nn/utils/prune.py: what is pruned counts for the share."""

RIGHT = "method.further(parameters_to_vector(scores), masks)"
WRONG = "method.compute_mask(parameters_to_vector(scores), masks)"
