"""a4w.3 in cuda_ops/ladders/puzzles.py: threads without an element write, too."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def double_guarded(a, out):
    t = cuda.threadIdx.x
    out[t] = 2 * a[t]
