"""a4w.9 in cuda_ops/ladders/puzzles.py: all threads add to one place at once."""

RIGHT = """\
    cells[t] = a[t] * b[t] if t < a.size else 0
    cuda.syncthreads()
    if t == 0:
        total = 0
        for k in range(THREADS):
            total += cells[k]
        out[0] = total
"""
WRONG = """\
    cells[t] = a[t] * b[t] if t < a.size else 0
    cuda.syncthreads()
    if t == 0:
        out[0] = 0
    cuda.syncthreads()
    out[0] += cells[t]
"""
