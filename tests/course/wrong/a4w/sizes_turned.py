"""a4w.5 in cuda_ops/ladders/puzzles.py: rows and columns are exchanged in the guard."""


@kernel(examples=["int64[] int64[] int64[]"], threads=THREADS)
def times_table(column, row, out):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < column.size and y < row.size:
        out[y * row.size + x] = column[y] * row[x]
