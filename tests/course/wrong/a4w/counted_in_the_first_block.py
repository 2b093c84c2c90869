"""a4w.10 in cuda_ops/ladders/puzzles.py: all blocks count the same."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def count_values(a, counts):
    i = cuda.threadIdx.x
    if i < a.size:
        cuda.atomic.add(counts, a[i], 1)
