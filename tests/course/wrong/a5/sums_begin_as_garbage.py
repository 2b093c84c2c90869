"""a5.4 in cuda_ops/matmul_ladder.py: the sums are not set to zero."""

RIGHT = """
    for i in range(HIGH):
        total[i] = zero
"""
WRONG = """
"""
