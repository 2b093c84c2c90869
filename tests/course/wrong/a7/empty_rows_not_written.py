"""a7.2 in fast_ops/sparse.py: nothing is written for rows without elements."""


def _matvec(crow, col, values, x, out, tasks):
    for number in prange(tasks):
        task = np.int64(number)
        for i in range(first_row(crow, task, tasks), first_row(crow, task + 1, tasks)):
            if crow[i] < crow[i + 1]:
                out[i] = part_of_row(values, col, x, crow[i], crow[i + 1])
