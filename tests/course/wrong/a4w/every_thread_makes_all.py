"""a4w.1 in cuda_ops/ladders/puzzles.py: each thread makes the first element."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def add_ten(a, out):
    out[0] = a[0] + 10
