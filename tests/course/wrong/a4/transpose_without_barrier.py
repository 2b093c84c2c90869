"""a4.5 in cuda_ops/transpose.py: the tile is read before it is there."""


def tile_kernel(padding, dtype):
    kind, pitch = dtype.numpy.type, SIDE + padding

    def kernel(a, at, batch_step, step, m, n, out):
        tile = cuda.shared.array((SIDE, pitch), kind)
        x = cuda.threadIdx.x % SIDE
        y = cuda.threadIdx.x // SIDE
        across, down = (n + SIDE - 1) // SIDE, (m + SIDE - 1) // SIDE
        line = cuda.blockIdx.x // across
        left = (cuda.blockIdx.x - line * across) * SIDE
        batch = line // down
        top = (line - batch * down) * SIDE
        first = at + batch * batch_step
        for k in range(y, SIDE, LINES):
            if top + k < m and left + x < n:
                tile[k, x] = load(a, first + (top + k) * step + left + x)
        for k in range(y, SIDE, LINES):
            if left + k < n and top + x < m:
                store(out, batch * m * n + (left + k) * m + top + x, tile[x, k])

    return kernel
