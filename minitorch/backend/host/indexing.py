"""Read and write elements whose positions are in another tensor: launchers.

With this file a backend of the host looks single elements up, adds to them or
overwrites them, and does the same with whole slices. Indices are checked in a pass of
their own, before anything is written. All kernels see a tensor as [outer, n, inner],
with the indexed dimension in the middle, and an index as int64.

    first_outside(index, n)                 -> the place of one not in [0, n), or -1
    gather(a, index, out, n, m, inner)      scatter(a, index, src, adds, n, m, inner)
    index_select(a, index, out, n, inner)   index_add(a, index, src, n, inner)
                                            index_copy(a, index, src, n, inner)

index and out, or src, are [outer, m, inner] in the first line, and the index is [m] in
the others. The kernels in the right column change a.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitorch.backend.host.memory import SERIAL_LIMIT, HostMemory, overlap
from minitorch.backend.indexing import Indexing, cropped, index_error, line_of
from minitorch.tensor_data import TensorData


class HostIndexing(HostMemory, Indexing):
    """The launchers of the kernels above."""

    _indexing: Any

    def gather(self, a: TensorData, dim: int, index: TensorData) -> TensorData:
        """The part of `a` that no index reaches is not looked at."""
        out = self.empty(index.shape, a.storage.dtype)
        z = out.storage.array
        if len(z) == 0:
            return out
        if not a.shape:
            a, index, dim = line_of(a), line_of(index), 0
        n, m = a.shape[dim], index.shape[dim]
        places = self._checked("gather", index, n, dim)
        self._indexing.gather[len(z) >= SERIAL_LIMIT](
            self._flat(cropped(a, dim, index.shape)), places, z, n, m,
            math.prod(index.shape[dim + 1 :]),
        )  # fmt: skip
        return out

    def scatter_add(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """Two elements that go to one place are added by one thread, in order."""
        return self._scattered("scatter_add", a, dim, index, src, out)

    def scatter(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """Two elements that go to one place are written by one thread, in order."""
        return self._scattered("scatter", a, dim, index, src, out)

    def _scattered(
        self, name: str, a: TensorData, dim: int, index: TensorData, src: TensorData,
        out: TensorData | None,
    ) -> TensorData:  # fmt: skip
        out = whole = self.copy(a, a.storage.dtype) if out is None else out
        if not a.shape:
            whole, index, src, dim = line_of(out), line_of(index), line_of(src), 0
        shape, n = index.shape, whole.shape[dim]
        places = self._checked(name, index, n, dim)
        if not len(places):
            return out
        window = cropped(whole, dim, shape)
        target = self.contiguous(window)
        self._indexing.scatter[len(places) >= SERIAL_LIMIT](
            target.flat(), places, self._flat(cropped(src, -1, shape)),
            name == "scatter_add", n, shape[dim], math.prod(shape[dim + 1 :]),
        )  # fmt: skip
        if target is not window:
            self.copy_into(window, target)
        return out

    def index_select(self, a: TensorData, dim: int, index: TensorData) -> TensorData:
        """A copy of whole slices."""
        if not a.shape:
            a, dim = line_of(a), 0
        n = a.shape[dim]
        places = self._checked("index_select", index, n, dim)
        shape = (*a.shape[:dim], len(places), *a.shape[dim + 1 :])
        out = self.empty(shape, a.storage.dtype)
        z = out.storage.array
        if len(z):
            self._indexing.index_select[len(z) >= SERIAL_LIMIT](
                self._flat(a), places, z, n, math.prod(shape[dim + 1 :])
            )
        return out

    def index_add(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """The slices are added in their order."""
        out = self.copy(a, a.storage.dtype) if out is None else out
        if not a.shape:
            a, dim = line_of(a), 0
        n = a.shape[dim]
        places = self._checked("index_add", index, n, dim)
        added = self._flat(src)
        if len(added):
            self._indexing.index_add[len(added) >= SERIAL_LIMIT](
                out.flat(), places, added, n, math.prod(a.shape[dim + 1 :])
            )
        return out

    def index_copy_(
        self, out: TensorData, dim: int, index: TensorData, src: TensorData
    ) -> None:
        """The slices are written in their order, by one thread."""
        if not out.shape:
            out, dim = line_of(out), 0
        n = out.shape[dim]
        places = self._checked("index_copy_", index, n, dim)
        if src.size == 0:
            return
        if overlap(src, out):
            src = self.copy(src, src.dtype)
        target = self.contiguous(out)
        self._indexing.index_copy[False](
            target.flat(), places, self._flat(src), n, math.prod(out.shape[dim + 1 :])
        )
        if target is not out:
            self.copy_into(out, target)

    def _checked(self, name: str, index: TensorData, size: int, dim: int) -> np.ndarray:
        """The indices as int64, row by row, all of them from 0 to size - 1."""
        places = self._int64s(index)
        bad = self._indexing.first_outside[False](places, size)
        if bad >= 0:
            raise index_error(name, places[bad], dim, size)
        return places
