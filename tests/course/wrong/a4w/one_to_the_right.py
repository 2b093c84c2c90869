"""a4w.1 in cuda_ops/ladders/puzzles.py: each thread writes its right neighbour."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def add_ten(a, out):
    t = cuda.threadIdx.x
    out[t + 1] = a[t] + 10
