"""a4w.9 in cuda_ops/ladders/puzzles.py: thread 0 adds before all have multiplied."""

RIGHT = """\
    cells[t] = a[t] * b[t] if t < a.size else 0
    cuda.syncthreads()
"""
WRONG = """\
    cells[t] = a[t] * b[t] if t < a.size else 0
"""
