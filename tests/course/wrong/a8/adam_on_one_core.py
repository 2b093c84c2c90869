"""a8.4 in fast_ops/optim.py: all elements on one core."""

RIGHT = """    for i in prange(p.size):
        x = p[i] * shrink"""
WRONG = """    for i in range(p.size):
        x = p[i] * shrink"""
