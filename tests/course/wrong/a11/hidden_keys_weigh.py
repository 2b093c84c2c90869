"""a11.3 in fast_ops/attention.py: hidden keys get gradients."""

RIGHT = """
        _hide(weights, keys, edge)
        _keep"""

WRONG = """
        _keep"""
