"""a4w.4 in cuda_ops/ladders/puzzles.py: places are counted column by column."""


@kernel(examples=["int64[] int64[] int64 int64"], threads=THREADS)
def lower_triangle(a, out, rows, cols):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < cols and y < rows:
        out[x * rows + y] = a[x * rows + y] if x <= y else 0
