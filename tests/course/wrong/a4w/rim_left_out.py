"""a4w.8 in cuda_ops/ladders/puzzles.py: nobody fills the two cells of the rim."""

RIGHT = """\
    if t < 2 and i + THREADS < a.size:
        cells[t + THREADS] = a[i + THREADS]
    cuda.syncthreads()
"""
WRONG = """\
    cuda.syncthreads()
"""
