"""a11.3 in fast_ops/attention.py: values get gradients of weights that were dropped."""

RIGHT = """
        _keep_again(weights, lines, keys, edge, kept)
        to = dv"""

WRONG = """
        to = dv"""
