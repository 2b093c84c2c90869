"""a7.1 in fast_ops/sparse.py: all rows on one core."""


def _columns(a, cols, crow, col):
    for i in range(crow.size - 1):
        place = crow[i]
        for k in range(cols):
            if a[i * cols + k] != 0:
                col[place] = k
                place += 1
