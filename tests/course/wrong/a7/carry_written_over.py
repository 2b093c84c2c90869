"""a7.5 in fast_ops/sparse_ladder.py: a race: all tasks write the row they share."""


@kernel(parallel=True)
def _merged(crow, col, values, x, out, carry_row, carry):
    steps, tasks = out.size + col.size, carry.size
    for number in prange(tasks):
        t = np.int64(number)
        start, stop = t * steps // tasks, (t + 1) * steps // tasks
        first, last = merge_row(crow, start), merge_row(crow, stop)
        p = start - first
        for i in range(first, last):
            out[i] = part_of_row(values, col, x, p, crow[i + 1])
            p = crow[i + 1]
        carry_row[t] = out.size
        carry[t] = 0
        if last < out.size:
            out[last] = part_of_row(values, col, x, p, stop - last)
