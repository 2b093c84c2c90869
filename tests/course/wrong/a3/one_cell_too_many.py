"""a3.2 in fast_ops/reduce_ladder.py: a cell more than there are, with a sum of 0."""


@kernel(parallel=True, fastmath=False)
def _register(x, cells):
    for task in prange(cells.size + 1):
        t = np.int64(task)
        total = 0.0
        for i in range(t * x.size // cells.size, (t + 1) * x.size // cells.size):
            if i < x.size:
                total += x[i]
        cells[t] = total
