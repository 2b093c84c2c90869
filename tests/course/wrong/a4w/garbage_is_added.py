"""a4w.9 in cuda_ops/ladders/puzzles.py: cells without elements keep their garbage."""

RIGHT = """\
    cells[t] = a[t] * b[t] if t < a.size else 0
"""
WRONG = """\
    if t < a.size:
        cells[t] = a[t] * b[t]
"""
