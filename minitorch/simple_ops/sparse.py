"""Work on matrices in compressed sparse rows, which store only what is not zero.

With this file one can multiply such a matrix by a dense one (`csr_matmul`), compute a
dense product only where it has non-zeros (`csr_sample`), transpose it
(`csr_transpose`), and go from and to dense matrices (`csr_pattern`, `csr_to_dense`).

A matrix A [M, K] with nnz stored elements is three lists:

    crow [M + 1]   row i has the elements crow[i], crow[i] + 1, ..., crow[i + 1] - 1
    col [nnz]      the column of each element
    values [nnz]   and its number

        0 5 0        crow   = [0, 1, 1, 3]
        0 0 0        col    = [1, 0, 2]
        7 0 8        values = [5, 7, 8]

Columns may come in any order within a row; of a place that comes twice, the sum counts.

Source: Saad, "Iterative Methods for Sparse Linear Systems", 2nd edition, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator

from minitorch.dtypes import int64
from minitorch.simple_ops.lists import nested, read, tensor
from minitorch.tensor_data import TensorData


def _elements(crow: TensorData, col: TensorData) -> Iterator[tuple[int, int, int]]:
    """(p, i, k) for all stored elements: number p stands in row i and column k."""
    # BEGIN SOLUTION a7.1
    starts, columns = read(crow), read(col)
    for i in range(len(starts) - 1):
        for p in range(starts[i], starts[i + 1]):
            yield p, i, columns[p]
    # END SOLUTION a7.1


def csr_matmul(
    crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
) -> TensorData:
    """A [M, K] @ dense [K, N] -> out [M, N]

    out[i, j] = sum of values[p] * dense[col[p], j] over the elements p of row i.
    """
    # BEGIN SOLUTION a7.3
    rows, n = crow.shape[0] - 1, dense.shape[1]
    numbers, right = read(values), nested(dense)
    out = [0] * (rows * n)
    for p, i, k in _elements(crow, col):
        for j in range(n):
            out[i * n + j] += numbers[p] * right[k][j]
    return tensor(out, (rows, n), values.dtype)
    # END SOLUTION a7.3


def csr_sample(
    crow: TensorData, col: TensorData, a: TensorData, b: TensorData
) -> TensorData:
    """a [M, N], b [K, N] -> out [nnz]: a @ b^T where A has elements, nowhere else.

    out[p] = a[i, 0] * b[col[p], 0] + ... + a[i, N-1] * b[col[p], N-1] for p in row i.
    """
    # BEGIN SOLUTION a7.4
    left, right = nested(a), nested(b)
    out = [
        sum(x * y for x, y in zip(left[i], right[k]))
        for _, i, k in _elements(crow, col)
    ]
    return tensor(out, col.shape, a.dtype)
    # END SOLUTION a7.4


def csr_transpose(
    crow: TensorData, col: TensorData, cols: int
) -> tuple[TensorData, TensorData, TensorData]:
    """The elements of A [M, cols] in the order of A^T: crow_t, col_t and order.

    Element p of A^T is element order[p] of A; order is int64. Within a row of A^T the
    elements are in the order in which they are in A.
    """
    # BEGIN SOLUTION a7.1
    elements = sorted(_elements(crow, col), key=lambda element: element[2])
    starts = [0] * (cols + 1)
    for _, _, k in elements:
        starts[k + 1] += 1
    for k in range(cols):
        starts[k + 1] += starts[k]
    return (
        tensor(starts, (cols + 1,), crow.dtype),
        tensor([i for _, i, _ in elements], col.shape, col.dtype),
        tensor([p for p, _, _ in elements], col.shape, int64),
    )
    # END SOLUTION a7.1


def csr_pattern(a: TensorData) -> tuple[TensorData, TensorData]:
    """Where a [M, K] is not zero: crow int64 [M + 1], col int64 [nnz]. NaN is not."""
    # BEGIN SOLUTION a7.1
    starts, columns = [0], []
    for row in nested(a):
        columns += [k for k, x in enumerate(row) if x != 0]
        starts.append(len(columns))
    return (
        tensor(starts, (len(starts),), int64),
        tensor(columns, (len(columns),), int64),
    )
    # END SOLUTION a7.1


def csr_to_dense(
    crow: TensorData, col: TensorData, values: TensorData, cols: int
) -> TensorData:
    """A as a dense matrix [M, cols]; numbers for the same place are added up."""
    # BEGIN SOLUTION a7.1
    rows, numbers = crow.shape[0] - 1, read(values)
    out = [0] * (rows * cols)
    for p, i, k in _elements(crow, col):
        out[i * cols + k] += numbers[p]
    return tensor(out, (rows, cols), values.dtype)
    # END SOLUTION a7.1
