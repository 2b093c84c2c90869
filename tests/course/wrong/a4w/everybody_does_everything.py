"""a4w.1 in cuda_ops/ladders/puzzles.py: each thread makes all elements, in a loop."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def add_ten(a, out):
    for t in range(a.size):
        out[t] = a[t] + 10
