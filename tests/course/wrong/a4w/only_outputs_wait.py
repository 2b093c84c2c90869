"""a4w.8 in cuda_ops/ladders/puzzles.py: only threads with an output wait."""

RIGHT = """\
    cuda.syncthreads()
    if i < out.size:
        out[i] = cells[t] + cells[t + 1] + cells[t + 2]
"""
WRONG = """\
    if i < out.size:
        cuda.syncthreads()
        out[i] = cells[t] + cells[t + 1] + cells[t + 2]
"""
