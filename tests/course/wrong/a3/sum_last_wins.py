"""a3.2 in fast_ops/reduce_ladder.py: all threads write one cell; the last one stays."""


@kernel(parallel=True, fastmath=False)
def _register(x, cells):
    for task in prange(cells.size):
        t = np.int64(task)
        total = 0.0
        for i in range(t * x.size // cells.size, (t + 1) * x.size // cells.size):
            total += x[i]
        cells[0] = total
