"""a9.1 in mojo_ops/matmul.mojo: the last term of each sum is left out."""

RIGHT = """
            for k in range(p.K):
                total += p.a[m * p.K + k] * p.b[k * p.N + n]
"""
WRONG = """
            for k in range(p.K - 1):
                total += p.a[m * p.K + k] * p.b[k * p.N + n]
"""
