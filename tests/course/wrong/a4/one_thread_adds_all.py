"""a4.3 in cuda_ops/ladders/reduce.py: thread 0 reads what all threads could."""


@kernel(threads=BLOCK)
def sum_contiguous_blocks(x, out):
    if cuda.threadIdx.x == 0:
        first = cuda.blockIdx.x * BLOCK
        total = ZERO
        for i in range(first, min(first + BLOCK, x.size)):
            total += x[i]
        out[cuda.blockIdx.x] = total
