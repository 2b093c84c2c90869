"""Choosing between two tensors.

With this file a backend of the host has `where`, from one flat kernel:

    where_flat(condition, a, b, out)        a and b have as many elements as out, or one
"""

from __future__ import annotations

from typing import Any

from minitorch.backend.host.memory import SERIAL_LIMIT, HostMemory
from minitorch.backend.primitives import Primitives
from minitorch.tensor_data import Shape, TensorData, broadcast_shapes


class HostElementwise(HostMemory, Primitives):
    """The launcher of the kernel above."""

    _elementwise: Any

    def where(
        self, condition: TensorData, a: TensorData, b: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """out[i] = a[i] if condition[i] else b[i]; all broadcast."""
        shape = broadcast_shapes(condition.shape, a.shape, b.shape)
        out = out or self.empty(shape, a.storage.dtype)
        z = out.flat()
        if len(z):
            x = a if a.size == 1 else self._as(a, shape)
            y = b if b.size == 1 else self._as(b, shape)
            chosen = self._flat(self._as(condition, shape))
            self._elementwise.where_flat[len(z) >= SERIAL_LIMIT](
                chosen, self._flat(x), self._flat(y), z
            )
        return out

    def _as(self, a: TensorData, shape: Shape) -> TensorData:
        return a if a.shape == shape else a.expand(shape)
