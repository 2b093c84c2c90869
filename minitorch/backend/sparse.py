"""Matrices in compressed sparse rows, which store only what is not zero.

With this file a backend multiplies such a matrix by a dense one (`csr_matmul`),
computes a dense product only where it has non-zeros (`csr_sample`), transposes it
(`csr_transpose`), and goes from and to dense matrices (`csr_pattern`, `csr_gather`,
`csr_to_dense`). The pictures are in `minitorch/simple_ops/sparse.py`.

A [M, K]: row i has the elements p from crow[i] to crow[i + 1] - 1, values[p] in column
col[p]. crow [M + 1] and col [nnz] are both int64 or both int32, and have been checked.
Columns come in any order; of a place that comes twice, the sum counts.

All the defaults rest on the row of each element (`_rows`), with which a sparse
operation is one of `gather` and `scatter_add`.
"""

from __future__ import annotations

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.backend.indexing import Indexing
from minitorch.tensor_data import TensorData


class Sparse(Indexing):
    """Defaults for compressed sparse rows."""

    def csr_matmul(
        self, crow: TensorData, col: TensorData, values: TensorData, dense: TensorData
    ) -> TensorData:
        """A [M, K] @ dense [K, N] -> [M, N]. Any dtype but bool."""
        products = self._mul(
            self.index_select(dense, 0, self._int64(col)), values.unsqueeze(1)
        )
        zeros = self.full((crow.shape[0] - 1, dense.shape[1]), 0, values.dtype)
        return self.index_add(zeros, 0, self._rows(crow, col), products)

    def csr_sample(
        self, crow: TensorData, col: TensorData, a: TensorData, b: TensorData
    ) -> TensorData:
        """a [M, N], b [K, N] -> [nnz]: out[p] = sum_j a[i, j] b[col[p], j] in row i."""
        left = self.index_select(a, 0, self._rows(crow, col))
        right = self.index_select(b, 0, self._int64(col))
        return self._sum(self._mul(left, right), (1,)).squeeze((1,))

    def csr_transpose(
        self, crow: TensorData, col: TensorData, cols: int
    ) -> tuple[TensorData, TensorData, TensorData]:
        """crow [K + 1] and col [nnz] of A^T, and order int64 [nnz].

        Element p of A^T is element order[p] of A; within a row of A^T the elements are
        in the order in which they are in A.
        """
        columns, order = self.sort(self._int64(col), 0, False)
        rows = self.index_select(self._rows(crow, col), 0, order)
        starts = self._starts(columns, cols)
        return self.copy(starts, crow.dtype), self.copy(rows, col.dtype), order

    def csr_pattern(self, a: TensorData) -> tuple[TensorData, TensorData]:
        """Where a [M, K] is not 0 (NaN is not): crow int64 [M + 1], col int64 [nnz]."""
        rows, cols = a.shape
        there = self.zip(operators.ne, a, self.number(0, a.dtype), dtypes.int64)
        flat = TensorData(there.storage, (rows * cols,))
        count = int(self.to_numpy(self._sum(flat, (0,)))[0])
        # A stable sort brings the places that are not 0 to the front, in their order.
        places = self.sort(flat, 0, True)[1].slice(0, 0, count)
        width = self.number(max(cols, 1), dtypes.int64)
        row = self.zip(operators.floor_divide, places, width)
        return self._starts(row, rows), self.zip(operators.remainder, places, width)

    def csr_gather(
        self, crow: TensorData, col: TensorData, a: TensorData
    ) -> TensorData:
        """a [M, K] -> [nnz]: out[p] = a[i, col[p]] in row i."""
        of_rows = self.index_select(a, 0, self._rows(crow, col))
        return self.gather(of_rows, 1, self._int64(col).unsqueeze(1)).squeeze((1,))

    def csr_to_dense(
        self, crow: TensorData, col: TensorData, values: TensorData, cols: int
    ) -> TensorData:
        """A as a dense matrix [M, cols]."""
        rows = crow.shape[0] - 1
        width = self.number(cols, dtypes.int64)
        start = self.zip(operators.mul, self._rows(crow, col), width)
        place = self.zip(operators.add, start, self._int64(col))
        zeros = self.full((rows * cols,), 0, values.dtype)
        flat = self.scatter_add(zeros, 0, place, values)
        return TensorData(flat.storage, (rows, cols))

    def _int64(self, index: TensorData) -> TensorData:
        return index if index.dtype is dtypes.int64 else self.copy(index, dtypes.int64)

    def _rows(self, crow: TensorData, col: TensorData) -> TensorData:
        """The row of each element, int64 [nnz]: how many rows have begun, less one.

        crow = 0 1 1 3    rows 1 and 2 begin at 1    begun = 1 2 0
                          less one, summed up:       rows  = 0 2 2
        """
        rows, count = crow.shape[0] - 1, col.shape[0]
        starts = self._int64(crow).slice(0, 0, rows)
        # Rows that are empty at the end begin after the last element.
        zeros = self.full((count + 1,), 0, dtypes.int64)
        begun = self.scatter_add(zeros, 0, starts, self.full((rows,), 1, dtypes.int64))
        total = self.cumsum(begun.slice(0, 0, count), 0)
        return self.zip(operators.sub, total, self.number(1, dtypes.int64))

    def _starts(self, sorted_rows: TensorData, rows: int) -> TensorData:
        """int64 [rows + 1]: where each row begins among the sorted row numbers."""
        one = self.number(1, dtypes.int64)
        after = self.zip(operators.add, sorted_rows, one)
        zeros = self.full((rows + 1,), 0, dtypes.int64)
        ones = self.full(sorted_rows.shape, 1, dtypes.int64)
        return self.cumsum(self.scatter_add(zeros, 0, after, ones), 0)
