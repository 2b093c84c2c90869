"""a3.3 in fast_ops/matmul.py: all rows on one core."""


@kernel(parallel=True)
def _parallel(a, b, out):
    for m in range(out.shape[0]):
        row = out[m]
        for n in range(row.size):
            row[n] = 0
        for k in range(a.shape[1]):
            left, right = a[m, k], b[k]
            for n in range(row.size):
                row[n] += left * right[n]
