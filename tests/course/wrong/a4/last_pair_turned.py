"""a4.1 in cuda_ops/elementwise.py: one pair of a large tile is turned around."""

RIGHT = "store4(out, i, fn(a0, b0), fn(a1, b1), fn(a2, b2), fn(a3, b3))"
WRONG = "store4(out, i, fn(a0, b0), fn(a1, b1), fn(a2, b2), fn(b3, a3))"
