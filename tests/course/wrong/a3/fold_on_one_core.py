"""a3.2 in fast_ops/reduce.py: all rows on one core."""


def fold_flat(fn):
    def loop(a, n, start, narrow, out):
        for r in range(out.size):
            x = a[r * n : r * n + n]
            total = start[0]
            for low in range(0, x.size, BLOCK):
                y = x[low : low + BLOCK]
                part = narrow[0]
                for e in range(y.size):
                    part = fn(part, y[e])
                total = fn(total, part)
            out[r] = total

    return loop
