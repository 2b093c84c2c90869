"""a4.3 in cuda_ops/ladders/reduce.py: all threads add to one cell, a race."""


@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_several_blocks(x, out):
    cells = cuda.shared.array(1, float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * BLOCK * EACH + t
    total = ZERO
    for k in range(EACH):
        i = first + k * BLOCK
        total += x[i] if i < x.size else ZERO
    if t == 0:
        cells[0] = ZERO
    cuda.syncthreads()
    cells[0] += total
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = cells[0]
