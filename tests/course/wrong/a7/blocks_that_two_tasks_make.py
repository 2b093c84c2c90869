"""a7.3 in fast_ops/sparse.py: a task makes the next one's first row as well."""


def _matmul(crow, col, values, dense, at, step, out, columns, wide, tasks):
    blocks = (columns + wide - 1) // wide
    for number in prange(tasks * blocks):
        task, block = divmod(np.int64(number), blocks)
        start = block * wide
        end = min(start + wide, columns)
        last = min(first_row(crow, task + 1, tasks) + 1, crow.size - 1)
        for i in range(first_row(crow, task, tasks), last):
            row = out[i * columns + start : i * columns + end]
            for j in range(row.size):
                row[j] = 0
            _add_rows(row, crow[i], crow[i + 1], col, values, dense, at + start, step)
