"""a7.2 in fast_ops/sparse_ladder.py: one task more, which goes on behind the end."""


@kernel(parallel=True)
def _by_rows(crow, col, values, x, out, tasks):
    for number in prange(tasks + 1):
        t = np.int64(number)
        for i in range(t * out.size // tasks, (t + 1) * out.size // tasks):
            out[i] = part_of_row(values, col, x, crow[i], crow[i + 1])
