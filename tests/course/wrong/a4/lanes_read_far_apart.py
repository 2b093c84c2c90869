"""a4.3 in cuda_ops/ladders/reduce.py: a thread's EACH elements are neighbours."""

RIGHT = """
    first = cuda.blockIdx.x * BLOCK * EACH + t
    total = ZERO
    for k in range(EACH):
        i = first + k * BLOCK
        total += x[i] if i < x.size else ZERO
    cells[t] = total
"""

WRONG = """
    first = (cuda.blockIdx.x * BLOCK + t) * EACH
    total = ZERO
    for k in range(EACH):
        i = first + k
        total += x[i] if i < x.size else ZERO
    cells[t] = total
"""
