"""a4.4 in cuda_ops/scan.py: the tile of out[i + 1] is taken for that of x[i + 1]."""


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def add_before(out, before):
    i = cuda.grid(1)
    if i + 1 < out.size:
        out[i + 1] += before[(i + 1) // TILE]
