"""a5.2 in cuda_ops/ladders/matmul.py: right, but neighbours make rows, far apart."""


@kernel(examples=[EXAMPLE], threads=AREA)
def matmul_row_by_row(a, b, out, M, N, K):
    m = cuda.blockIdx.y * SIDE + cuda.threadIdx.x % SIDE
    n = cuda.blockIdx.x * SIDE + cuda.threadIdx.x // SIDE
    if m < M and n < N:
        total = out.dtype.type(0)
        for k in range(K):
            total += a[m * K + k] * b[k * N + n]
        out[m * N + n] = total
