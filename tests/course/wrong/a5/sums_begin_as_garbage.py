"""a5.4 in cuda_ops/ladders/matmul.py: the sums are not set to zero."""

RIGHT = """
    for i in range(HIGH):
        total[i] = zero
"""
WRONG = """
"""
