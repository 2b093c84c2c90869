"""a7.2 in cuda_ops/ladders/sparse.py: the sums of half of the lanes get lost."""


@kernel(threads=THREADS)
def csr_row_a_warp(crow, col, values, dense, out, n):
    i = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    lane = cuda.threadIdx.x % WARP
    total = values.dtype.type(0)
    if i * n < out.size:
        for p in range(crow[i] + lane, crow[i + 1], WARP):
            total += values[p] * dense[col[p]]
    total += shuffle_xor(total, 8)
    total += shuffle_xor(total, 4)
    total += shuffle_xor(total, 2)
    total += shuffle_xor(total, 1)
    if lane == 0 and i * n < out.size:
        out[i] = total
