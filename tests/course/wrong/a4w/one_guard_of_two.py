"""a4w.4 in cuda_ops/ladders/puzzles.py: no guard for columns: rows run over."""


@kernel(examples=["int64[] int64[] int64 int64"], threads=THREADS)
def lower_triangle(a, out, rows, cols):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if y * cols + x < out.size:
        out[y * cols + x] = a[y * cols + x] if x <= y else 0
