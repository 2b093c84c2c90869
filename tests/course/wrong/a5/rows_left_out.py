"""a5.4 in cuda_ops/ladders/matmul.py: rows at the edge decide for all rows."""

RIGHT = """
        if row + y * HIGH + i < M and n < N:
"""
WRONG = """
        if row + y * HIGH + HIGH <= M and n < N:
"""
