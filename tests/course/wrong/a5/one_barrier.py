"""a5.3 in cuda_ops/ladders/matmul.py: fast threads overwrite tiles that others use."""


@kernel(examples=[EXAMPLE], threads=AREA)
def matmul_shared_tiles(a, b, out, M, N, K):
    a_tile = cuda.shared.array(AREA, out.dtype)
    b_tile = cuda.shared.array(AREA, out.dtype)
    x, y = cuda.threadIdx.x % SIDE, cuda.threadIdx.x // SIDE
    m = cuda.blockIdx.y * SIDE + y
    n = cuda.blockIdx.x * SIDE + x
    total = zero = out.dtype.type(0)
    for k0 in range(0, K, SIDE):
        a_tile[y * SIDE + x] = a[m * K + k0 + x] if m < M and k0 + x < K else zero
        b_tile[y * SIDE + x] = b[(k0 + y) * N + n] if n < N and k0 + y < K else zero
        cuda.syncthreads()
        for k in range(SIDE):
            total += a_tile[y * SIDE + k] * b_tile[k * SIDE + x]
    if m < M and n < N:
        out[m * N + n] = total
