"""a4w.7 in cuda_ops/ladders/puzzles.py: nobody waits for the threads that write."""

RIGHT = """\
    cells[t] = a[i]
    cuda.syncthreads()
    out[i] = cells[THREADS - 1 - t]
"""
WRONG = """\
    cells[t] = a[i]
    out[i] = cells[THREADS - 1 - t]
"""
