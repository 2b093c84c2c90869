"""a4.3 in cuda_ops/ladders/reduce.py: no tree; thread 0 adds all cells."""


@kernel(threads=BLOCK)
def sum_several_blocks(x, out):
    cells = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    total = ZERO
    for k in range(EACH):
        i = (cuda.blockIdx.x * EACH + k) * BLOCK + t
        total += x[i] if i < x.size else ZERO
    cells[t] = total
    cuda.syncthreads()
    if t == 0:
        total = ZERO
        for k in range(BLOCK):
            total += cells[k]
        out[cuda.blockIdx.x] = total
