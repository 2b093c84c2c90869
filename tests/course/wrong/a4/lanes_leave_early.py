"""a4.6 in cuda_ops/ladders/reduce.py: threads without elements miss the shuffles."""


@kernel(examples=["float32[] float32[]"], threads=BLOCK)
def sum_shuffle_blocks(x, out):
    cells = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * BLOCK * EACH + t
    if first >= x.size:
        return
    total = ZERO
    for k in range(EACH):
        i = first + k * BLOCK
        total += x[i] if i < x.size else ZERO
    total = total_of(total, t, cells)
    if t == 0:
        out[cuda.blockIdx.x] = total
