"""a5.3 in cuda_ops/ladders/matmul.py: right, but each product reads global memory."""


@kernel(examples=[EXAMPLE], threads=AREA)
def matmul_shared_tiles(a, b, out, M, N, K):
    x, y = cuda.threadIdx.x % SIDE, cuda.threadIdx.x // SIDE
    m = cuda.blockIdx.y * SIDE + y
    n = cuda.blockIdx.x * SIDE + x
    if m < M and n < N:
        total = out.dtype.type(0)
        for k in range(K):
            total += a[m * K + k] * b[k * N + n]
        out[m * N + n] = total
