"""a7.3 in minitorch/simple_ops/sparse.py: takes row i of the dense matrix."""


def csr_matmul(crow, col, values, dense):
    rows, n = crow.shape[0] - 1, dense.shape[1]
    numbers, right = read(values), nested(dense)
    out = [0] * (rows * n)
    for p, i, _ in _elements(crow, col):
        for j in range(n):
            out[i * n + j] += numbers[p] * right[i % len(right)][j]
    return tensor(out, (rows, n), values.dtype)
