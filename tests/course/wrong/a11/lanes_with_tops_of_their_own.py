"""a11.6 in cuda_ops/ladders/attention.py: lanes do not share their maximum."""

RIGHT = """
            new = max(new, shuffle_xor(new, 1 << step))
"""

WRONG = """
            new = max(new, shuffle_xor(new, 0))
"""
