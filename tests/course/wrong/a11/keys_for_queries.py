"""a11.6 in cuda_ops/attention/composed.py: queries and keys are mixed up."""

RIGHT = """
        j = t % S
        i = t // S % L
"""

WRONG = """
        j = t % L
        i = t // L % S
"""
