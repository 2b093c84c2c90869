"""a7.2 in fast_ops/sparse_ladder.py: all tasks on one core."""


@kernel(parallel=True)
def _by_rows(crow, col, values, x, out, tasks):
    for t in range(tasks):
        for i in range(t * out.size // tasks, (t + 1) * out.size // tasks):
            out[i] = part_of_row(values, col, x, crow[i], crow[i + 1])
