"""Reading and writing by position: the names of `Tensor`.

With this file one can find what an index means: `a[1, 2:]` is `getitem` in
`minitorch/functions/indexing.py`.
"""

from __future__ import annotations

from typing import Any

from minitorch.functions import indexing


class Indexing:
    """Brackets, and the methods that pick elements or scatter them."""

    __slots__ = ()

    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem
    select = indexing.select
    masked_select = indexing.masked_select
    nonzero = indexing.nonzero
    gather = indexing.gather
    scatter = indexing.scatter
    scatter_add = indexing.scatter_add
    index_select = indexing.index_select
    repeat_interleave = indexing.repeat_interleave

    def to_sparse_csr(self: Any) -> Any:
        """The elements of a matrix that are not 0, as a `minitorch.SparseCSR`."""
        from minitorch.sparse import to_sparse_csr

        return to_sparse_csr(self)
