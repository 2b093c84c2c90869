"""a4w.7 in cuda_ops/ladders/puzzles.py: all is read from a, nothing shared."""

RIGHT = """\
    cells[t] = a[i]
    cuda.syncthreads()
    out[i] = cells[THREADS - 1 - t]
"""
WRONG = """\
    out[i] = a[cuda.blockIdx.x * THREADS + THREADS - 1 - t]
"""
