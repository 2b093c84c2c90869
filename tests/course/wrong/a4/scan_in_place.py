"""a4.4 in cuda_ops/scan.py: a round changes cells that others still have to read."""


@kernel(examples=["int64[] int64[] int64[]"], threads=THREADS)
def scan_tiles(x, out, sums):
    totals = cuda.shared.array(THREADS, int64)
    tid = cuda.threadIdx.x
    start = cuda.blockIdx.x * TILE + tid * EACH
    total = 0
    for i in range(start, min(start + EACH, x.size)):
        total += x[i]
    totals[tid] = total
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        if tid >= step:
            totals[tid] += totals[tid - step]
        cuda.syncthreads()
        step *= 2
    running = totals[tid] - total
    for i in range(start, min(start + EACH, x.size)):
        running += x[i]
        out[i + 1] = running
    if tid == THREADS - 1:
        sums[cuda.blockIdx.x] = totals[tid]
    if cuda.grid(1) == 0:
        out[0] = 0
