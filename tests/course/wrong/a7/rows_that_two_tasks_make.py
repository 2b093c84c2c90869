"""a7.2 in fast_ops/sparse.py: a task makes the next one's first row as well."""


def _matvec(crow, col, values, x, out, tasks):
    for number in prange(tasks):
        task = np.int64(number)
        last = min(first_row(crow, task + 1, tasks) + 1, out.size)
        for i in range(first_row(crow, task, tasks), last):
            out[i] = part_of_row(values, col, x, crow[i], crow[i + 1])
