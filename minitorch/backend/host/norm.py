"""Layer norm and batch norm, forward and backward: launchers.

With this file a backend of the host brings each row (`layer_norm`) or each channel
(`batch_norm`) to mean 0 and variance 1, from four flat kernels:

    layer_norm(x, weight, bias, eps, out, mean, rstd)
    layer_norm_backward(grad, x, mean, rstd, weight, dx, partial, dw, db)
    batch_norm(x, weight, bias, eps, out, mean, variance, L)
    batch_norm_backward(grad, x, mean, variance, weight, eps, dx, dw, db, L)

`partial` [blocks, 2, D] has room for partial sums of dw and db.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitorch.backend.host.memory import SERIAL_LIMIT, HostMemory
from minitorch.backend.norm import Norm, Three
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData

BLOCKS = 32  # partial sums over rows, at most
SHORT = 16  # lines below this length are copied together first


class HostNorm(HostMemory, Norm):
    """The launchers of the kernels above."""

    _norm: Any

    def layer_norm(
        self, x: TensorData, weight: TensorData | None, bias: TensorData | None,
        eps: float, dtype: DType | None = None,
    ) -> Three:  # fmt: skip
        """In one pass over memory for each row."""
        (rows, width), kind = x.shape, x.storage.dtype
        out, mean = self.empty(x.shape, kind), self.empty((rows,), kind)
        rstd = self.empty((rows,), kind)
        self._norm.layer_norm[rows * width >= SERIAL_LIMIT](
            self._flat(x), self._flat_or(weight, width, 1.0, kind),
            self._flat_or(bias, width, 0.0, kind), eps,
            out.storage.array, mean.storage.array, rstd.storage.array,
        )  # fmt: skip
        return out if dtype is None else self.copy(out, dtype), mean, rstd

    def layer_norm_backward(
        self, grad: TensorData, x: TensorData, mean: TensorData, rstd: TensorData,
        weight: TensorData | None, plus: TensorData | None = None,
        rounded: TensorData | None = None,
    ) -> Three:  # fmt: skip
        """The sums over rows are cut into blocks whose number depends on the shape."""
        (rows, width), dtype = x.shape, x.storage.dtype
        dx, dw = self.empty(x.shape, dtype), self.empty((width,), dtype)
        db = self.empty((width,), dtype)
        blocks = max(1, min(BLOCKS, rows // 4))
        self._norm.layer_norm_backward[rows * width >= SERIAL_LIMIT](
            self._flat(grad), self._flat(x), self._flat(mean), self._flat(rstd),
            self._flat_or(weight, width, 1.0, dtype), dx.storage.array,
            np.empty((blocks, 2, width), dtype.numpy),
            dw.storage.array, db.storage.array,
        )  # fmt: skip
        return self._with(dx, plus, rounded), dw, db

    def batch_norm(
        self, x: TensorData, weight: TensorData | None, bias: TensorData | None,
        eps: float,
    ) -> Three:  # fmt: skip
        """Short lines are copied together first; NaN where there are no elements."""
        (images, channels, length), dtype = x.shape, x.storage.dtype
        if length < SHORT and x.size and images > 1:
            out, mean, variance = self.batch_norm(
                self._by_channel(x), weight, bias, eps
            )
            return self._by_image(out, images), mean, variance
        out, mean = self.empty(x.shape, dtype), self.empty((channels,), dtype)
        variance = self.empty((channels,), dtype)
        if x.size == 0:
            mean.storage.array.fill(math.nan)
            variance.storage.array.fill(math.nan)
            return out, mean, variance
        self._norm.batch_norm[x.size >= SERIAL_LIMIT](
            self._flat(x), self._flat_or(weight, channels, 1.0, dtype),
            self._flat_or(bias, channels, 0.0, dtype), eps,
            out.storage.array, mean.storage.array, variance.storage.array, length,
        )  # fmt: skip
        return out, mean, variance

    def batch_norm_backward(
        self, grad: TensorData, x: TensorData, mean: TensorData, variance: TensorData,
        weight: TensorData | None, eps: float,
    ) -> Three:  # fmt: skip
        """Short lines are copied together first, as in `batch_norm`."""
        (images, channels, length), dtype = x.shape, x.storage.dtype
        if length < SHORT and x.size and images > 1:
            grad, x = self._by_channel(grad), self._by_channel(x)
            dx, dw, db = self.batch_norm_backward(grad, x, mean, variance, weight, eps)
            return self._by_image(dx, images), dw, db
        dx, dw = self.empty(x.shape, dtype), self.empty((channels,), dtype)
        db = self.empty((channels,), dtype)
        if x.size == 0:
            dw.storage.array.fill(0)
            db.storage.array.fill(0)
            return dx, dw, db
        self._norm.batch_norm_backward[x.size >= SERIAL_LIMIT](
            self._flat(grad), self._flat(x), self._flat(mean), self._flat(variance),
            self._flat_or(weight, channels, 1.0, dtype), eps,
            dx.storage.array, dw.storage.array, db.storage.array, length,
        )  # fmt: skip
        return dx, dw, db

    def _flat_or(
        self, a: TensorData | None, size: int, value: float, dtype: DType
    ) -> np.ndarray:
        """The elements of `a`, or `value` everywhere where there is none."""
        return np.full(size, value, dtype.numpy) if a is None else self._flat(a)

    def _by_channel(self, x: TensorData) -> TensorData:
        """Short lines of [N, C, L] put together as [1, C, N * L]: a copy."""
        n, c, length = x.shape
        moved = self.copy(x.permute((1, 0, 2)), x.dtype)
        return TensorData(moved.storage, (1, c, n * length))

    def _by_image(self, x: TensorData, n: int) -> TensorData:
        """[1, C, N * L] as [N, C, L] again: a copy."""
        _, c, size = x.shape
        moved = TensorData(x.storage, (c, n, size // n)).permute((1, 0, 2))
        return self.copy(moved, x.dtype)
