"""a17.2 in minitorch/nn/utils/prune.py: each layer loses its share."""

RIGHT = "found = method.further(parameters_to_vector(scores), masks)"
WRONG = """\
found = [
        method.further(s, mask_of(m, n)) for s, (m, n) in zip(scores, pairs)
    ]
    found = parameters_to_vector(found)"""
