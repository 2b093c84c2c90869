"""a3.4 in fast_ops/reduce_ladder.py: all parts on one core."""


@kernel(parallel=True, fastmath=False)
def _cells(x, cells, spacing, zero):
    parts = cells.size // spacing
    for t in range(parts):
        for i in range(t * x.size // parts, (t + 1) * x.size // parts):
            cells[t * spacing + (i & zero)] += x[i]
