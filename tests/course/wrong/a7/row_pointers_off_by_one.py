"""a7.1 in minitorch/simple_ops/sparse.py: counts one row too far."""


def csr_transpose(crow, col, cols):
    elements = sorted(_elements(crow, col), key=lambda element: element[2])
    starts = [0] * (cols + 1)
    for _, _, k in elements:
        starts[k] += 1
    for k in range(cols):
        starts[k + 1] += starts[k]
    return (
        tensor(starts, (cols + 1,), crow.dtype),
        tensor([i for _, i, _ in elements], col.shape, col.dtype),
        tensor([p for p, _, _ in elements], col.shape, int64),
    )
