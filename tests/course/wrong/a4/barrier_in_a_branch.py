"""a4.3 in cuda_ops/ladders/reduce.py: only the threads that add wait at the barrier."""


@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_contiguous_blocks(x, out):
    cells = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    cells[t] = x[i] if i < x.size else ZERO
    half = BLOCK // 2
    while half > 0:
        if t < half:
            cuda.syncthreads()
            cells[t] += cells[t + half]
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = cells[0]
