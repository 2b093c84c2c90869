"""a3.3 in fast_ops/matmul.py: forgets the rows after the last whole block."""


@kernel(parallel=True)
def _blocked(a, b, out):
    for block in prange(out.shape[0] // 32):
        first = np.int64(block) * 32
        for m in range(first, first + 32):
            for n in range(out.shape[1]):
                total = out.dtype.type(0)
                for k in range(a.shape[1]):
                    total += a[m, k] * b[k, n]
                out[m, n] = total
