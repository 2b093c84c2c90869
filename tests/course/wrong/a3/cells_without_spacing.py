"""a3.4 in fast_ops/reduce_ladder.py: the cells lie side by side."""


@kernel(parallel=True, fastmath=False)
def _cells(x, cells, spacing, zero):
    parts = cells.size // spacing
    for task in prange(parts):
        t = np.int64(task)
        for i in range(t * x.size // parts, (t + 1) * x.size // parts):
            cells[t + (i & zero)] += x[i]
