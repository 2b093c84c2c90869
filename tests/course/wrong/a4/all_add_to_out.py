"""a4.3 in cuda_ops/ladders/reduce.py: no tree; threads wait for each other at out."""


@kernel(threads=BLOCK)
def sum_contiguous_blocks(x, out):
    t, block = cuda.threadIdx.x, cuda.blockIdx.x
    if t == 0:
        out[block] = ZERO
    cuda.syncthreads()
    i = block * BLOCK + t
    if i < x.size:
        cuda.atomic.add(out, block, x[i])
