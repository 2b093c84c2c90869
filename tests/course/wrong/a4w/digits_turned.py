"""a4w.2 in cuda_ops/ladders/puzzles.py: the digits are in the wrong order."""


@kernel(examples=["int64[] int64[] int64[]"], threads=THREADS)
def glue_digits(a, b, out):
    t = cuda.threadIdx.x
    out[t] = a[t] + 10 * b[t]
