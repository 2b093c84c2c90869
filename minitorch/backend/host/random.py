"""Random numbers: launchers.

With this file a backend of the host fills tensors with uniform, normal or whole random
numbers, and drops elements at random. They are the numbers of all other devices, bit
for bit. `key0` and `key1` are the low and the high 32 bits of the seed.

    uniform(key0, key1, offset, out)        randint(key0, key1, offset, low, span, out)
    normal(key0, key1, offset, out)         dropout(key0, key1, offset, x, first_kept,
                                                    scale, out)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from minitorch.backend.host.memory import SERIAL_LIMIT, FlatKernel, HostMemory
from minitorch.backend.primitives import Primitives
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

LOW_32 = 0xFFFFFFFF


class HostRandom(HostMemory, Primitives):
    """The launchers of the kernels above."""

    _random: Any

    def uniform(self, shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
        """Each thread makes whole blocks."""
        out = self.empty(shape, dtype)
        return _draw(self._random.uniform, seed, offset, out)

    def normal(self, shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
        """As `uniform`."""
        return _draw(self._random.normal, seed, offset, self.empty(shape, dtype))

    def randint(
        self, low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
    ) -> TensorData:
        """As `uniform`."""
        out = self.empty(shape, dtype)
        return _draw(self._random.randint, seed, offset, out, low, high - low)

    def dropout(self, x: TensorData, p: float, seed: int, offset: int) -> TensorData:
        """The mask never exists in memory."""
        out = self.empty(x.shape, x.storage.dtype)
        kept = _first_kept_and_scale(p, x.storage.dtype)
        return _draw(self._random.dropout, seed, offset, out, self._flat(x), *kept)


@lru_cache(maxsize=64)
def _first_kept_and_scale(p: float, dtype: DType) -> tuple[int, np.ndarray]:
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    return math.ceil(p * 2.0**32), np.array([scale], dtype.numpy)


def _draw(
    kernel: FlatKernel, seed: int, offset: int, out: TensorData, *args: Any
) -> TensorData:
    z = out.storage.array
    if len(z):
        key0, key1 = seed & LOW_32, (seed >> 32) & LOW_32
        kernel[len(z) >= SERIAL_LIMIT](key0, key1, offset, *args, z)
    return out
