"""a8.2 in cuda_ops/ladders/softmax.py: the running total is not scaled down."""


@kernel(threads=BLOCK)
def softmax_two_passes(a, out, n):
    tops = cuda.shared.array(WARPS, float32)
    totals = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x * n
    top, total = LOWEST, ZERO
    for i in range(t, n, BLOCK):
        x = a[row + i]
        top = max(top, x)
        if x > LOWEST:
            total += exp(x - top)
    top, total = merge(top, total, t, tops, totals)
    for i in range(t, n, BLOCK):
        out[row + i] = exp(a[row + i] - top) / total
