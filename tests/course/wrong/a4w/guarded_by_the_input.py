"""a4w.6 in cuda_ops/ladders/puzzles.py: the guard is for a, which has more elements."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def every_second(a, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = a[2 * i]
