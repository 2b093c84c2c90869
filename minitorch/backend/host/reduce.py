"""Positions of extremes, and running totals: launchers.

With this file a backend of the host has `argmax` and `argmin`, whose kernels see rows
of n numbers, and `cumsum`, whose kernel sees [outer, n, inner]:

    argmax(rows, n, out)                    argmin(rows, n, out)
    cumsum(a, n, inner, out)
"""

from __future__ import annotations

import math
from typing import Any

from minitorch.backend.host.memory import SERIAL_LIMIT, FlatKernel, HostMemory
from minitorch.backend.primitives import Primitives
from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData


class HostReduce(HostMemory, Primitives):
    """The launchers of the kernels above."""

    _reduce: Any

    def argmax(self, a: TensorData, dim: int) -> TensorData:
        """int64 positions of the first maximum along `dim` (kept as 1); NaN wins."""
        return self._first(self._reduce.argmax, "argmax", a, dim)

    def argmin(self, a: TensorData, dim: int) -> TensorData:
        """int64 positions of the first minimum along `dim` (kept as 1); NaN wins."""
        return self._first(self._reduce.argmin, "argmin", a, dim)

    def _first(
        self, kernel: FlatKernel, name: str, a: TensorData, dim: int
    ) -> TensorData:
        if a.dims == 0:
            return self.full((), 0, int64)
        n = a.shape[dim]
        out = self.empty((*a.shape[:dim], 1, *a.shape[dim + 1 :]), int64)
        z = out.storage.array
        if len(z) == 0:
            return out
        if n == 0:
            raise ValueError(f"{name}: dimension {dim} of {a.shape} has no elements")
        rows = self._last(a, dim).flat()
        kernel[len(rows) >= SERIAL_LIMIT](rows, n, z)
        return out

    def cumsum(self, a: TensorData, dim: int) -> TensorData:
        """out[i] = a[0] + ... + a[i] along `dim`."""
        return self._running(self._reduce.cumsum, a, dim)

    def _running(self, kernel: FlatKernel, a: TensorData, dim: int) -> TensorData:
        if a.dims == 0:
            return self.copy(a, a.dtype)
        out = self.empty(a.shape, a.storage.dtype)
        z = out.storage.array
        if len(z):
            inner = math.prod(a.shape[dim + 1 :])
            n = a.shape[dim]
            kernel[SERIAL_LIMIT <= len(z) > n](self._flat(a), n, inner, z)
        return out
