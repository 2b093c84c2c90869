"""a4w.8 in cuda_ops/ladders/puzzles.py: the rim is filled behind the barrier."""

RIGHT = """\
    if t < 2 and i + THREADS < a.size:
        cells[t + THREADS] = a[i + THREADS]
    cuda.syncthreads()
"""
WRONG = """\
    cuda.syncthreads()
    if t < 2 and i + THREADS < a.size:
        cells[t + THREADS] = a[i + THREADS]
"""
