"""a4.5 in cuda_ops/transpose.py: right, but without the column that padded adds."""


def tile_kernel(padding, dtype):
    kind = dtype.numpy.type

    def kernel(a, a_at, a_steps, out, out_at, out_steps, shape):
        a_first, out_first, rows, cols = tile_of_block(
            SIDE, a_at, a_steps, out_at, out_steps, shape
        )
        tile = cuda.shared.array((SIDE, SIDE), kind)
        x = cuda.threadIdx.x % SIDE
        y = cuda.threadIdx.x // SIDE
        for k in range(y, SIDE, BLOCK_ROWS):
            if k < rows and x < cols:
                tile[k, x] = load(a, a_first + k * a_steps[2] + x * a_steps[3])
        cuda.syncthreads()
        for k in range(y, SIDE, BLOCK_ROWS):
            if x < rows and k < cols:
                p = out_first + x * out_steps[2] + k * out_steps[3]
                store(out, p, tile[x, k])

    return kernel
