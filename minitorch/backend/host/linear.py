"""A layer's bias and activation in one pass: launchers.

With this file a backend of the host adds a bias to every row of a matrix and applies a
function of one number to the sums, and carries a gradient back through that function.
It brings the two passes themselves (`_bias_rows`, `_bias_rows_backward`), as it knows
best how to find a loop for a function.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from minitorch import operators
from minitorch.backend.host.memory import HostMemory, overlap, same_window
from minitorch.backend.linear import Linear
from minitorch.tensor_data import TensorData


class HostLinear(HostMemory, Linear):
    """The launchers of what a backend brings."""

    @abstractmethod
    def _bias_rows(
        self, fn: Callable, x: TensorData, bias: TensorData, out: TensorData
    ) -> None:
        """out = fn(x + bias), none empty; x may be `out`, which is contiguous."""

    @abstractmethod
    def _bias_rows_backward(
        self,
        fn: Callable,
        grad: TensorData,
        x: TensorData,
        bias: TensorData,
        out: TensorData,
    ) -> None:
        """out = fn(grad, x + bias), none empty."""

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
        elif (
            not out.is_contiguous()
            or overlap(bias, out)
            or (x is not out and overlap(x, out) and not same_window(x, out))
        ):
            self.copy_into(out, self.bias_activation(x, bias, fn))
            return out
        if 0 not in out.shape:
            self._bias_rows(fn or operators.identity, x, bias, out)
        return out

    def bias_activation_backward(
        self, grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
    ) -> TensorData:
        """As `bias_activation`."""
        out = self.empty(x.shape, x.storage.dtype)
        if 0 not in out.shape:
            self._bias_rows_backward(fn_backward, grad, x, bias, out)
        return out
