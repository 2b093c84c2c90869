"""A layer's bias and activation in one pass: launchers.

With this file a backend of the host adds a bias to every row of a matrix and applies a
function of one number to the sums, and carries a gradient back through that function.
It brings the two passes themselves (`_bias_rows`, `_bias_rows_backward`), as it knows
best how to find a loop for a function.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from minitorch.backend.host.memory import HostMemory, overlap, same_window
from minitorch.backend.linear import Linear
from minitorch.operators import identity
from minitorch.tensor_data import TensorData


class HostLinear(HostMemory, Linear):
    """The launchers of what a backend brings."""

    @abstractmethod
    def _bias_rows(
        self, fn: Callable, x: np.ndarray, bias: np.ndarray, out: np.ndarray
    ) -> bool:
        """out = fn(x + bias) for flat arrays; x is `out`, or does not touch it.

        Returns False where there is no such loop: then out = x + bias.
        """

    @abstractmethod
    def _bias_rows_backward(
        self,
        fn: Callable,
        grad: np.ndarray,
        x: np.ndarray,
        bias: np.ndarray,
        out: np.ndarray,
    ) -> bool:
        """out = fn(grad, x + bias), or, with False, out = x + bias."""

    def bias_activation(
        self,
        x: TensorData,
        bias: TensorData,
        fn: Callable | None,
        out: TensorData | None = None,
    ) -> TensorData:
        """The sums only ever exist in registers, or in the cache."""
        if out is None:
            out = self.empty(x.shape, x.storage.dtype)
            z, source = out.storage.array, self._flat(x)
        elif not out.is_contiguous() or overlap(bias, out):
            self.copy_into(out, self.bias_activation(x, bias, fn))
            return out
        else:
            z = out.flat()
            if x is out or same_window(x, out):
                source = z
            else:
                source = self._flat(self.copy(x, x.dtype) if overlap(x, out) else x)
        if len(z):
            whole = self._bias_rows(fn or identity, source, self._flat(bias), z)
            if not whole and fn is not None:
                self.map(fn, out, out=out)
        return out

    def bias_activation_backward(
        self, grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
    ) -> TensorData:
        """As `bias_activation`."""
        out = self.empty(x.shape, x.storage.dtype)
        z = out.storage.array
        if len(z) and not self._bias_rows_backward(
            fn_backward, self._flat(grad), self._flat(x), self._flat(bias), z
        ):
            self.zip(fn_backward, grad, out, out=out)
        return out
