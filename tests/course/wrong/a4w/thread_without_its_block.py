"""a4w.6 in cuda_ops/ladders/puzzles.py: each block makes what the first one makes."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def every_second(a, out):
    i = cuda.threadIdx.x
    if i < out.size:
        out[i] = a[2 * i]
