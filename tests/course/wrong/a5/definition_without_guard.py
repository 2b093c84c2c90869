"""a5.1 in cuda_ops/ladders/matmul.py: what is behind a row's end counts, too."""


@kernel(examples=[EXAMPLE], threads=AREA)
def matmul_one_by_one(a, b, out, M, N, K):
    m = cuda.blockIdx.x * SIDE + cuda.threadIdx.x % SIDE
    n = cuda.blockIdx.y * SIDE + cuda.threadIdx.x // SIDE
    if m * N + n < out.size:
        total = out.dtype.type(0)
        for k in range(K):
            if k * N + n < b.size:
                total += a[m * K + k] * b[k * N + n]
        out[m * N + n] = total
