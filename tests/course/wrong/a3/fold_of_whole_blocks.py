"""a3.2 in fast_ops/reduce.py: leaves out what fills no block."""


def fold_flat(fn):
    def loop(a, n, start, narrow, out):
        for r in prange(out.size):
            row = np.int64(r) * n
            end = min(row + n, a.size)
            total = start[0]
            for low in range(row, row + (end - row) // BLOCK * BLOCK, BLOCK):
                part = narrow[0]
                for e in range(BLOCK):
                    part = fn(part, a[low + e])
                total = fn(total, part)
            out[r] = total

    return loop
