"""a4w.10 in cuda_ops/ladders/puzzles.py: two read before one of them writes."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def count_values(a, counts):
    i = cuda.grid(1)
    if i < a.size:
        counts[a[i]] += 1
