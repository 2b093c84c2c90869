"""What follows the matrix product of a layer: a bias, and an activation.

With this file a backend adds a bias to every row of a matrix and applies a function to
the sums, by two elementwise operations; a kernel of its own reads and writes once. It
multiplies by a weight of bytes, too (`quantized_linear`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minitorch.operators as operators
from minitorch.backend.primitives import Primitives
from minitorch.dtypes import DType, computed
from minitorch.tensor_data import TensorData

# Weight and bias [K] of a layer norm, and its eps.
NormOf = tuple[TensorData | None, TensorData | None, float]
# A layer's cache [R, H, S, E], and the slot, int64 [1], that is written.
Kept = tuple[TensorData, TensorData]


class Linear(Primitives):
    """Defaults for a layer's bias and activation."""

    def linear(
        self, x: TensorData, weight: TensorData, bias: TensorData | None = None,
        fn: Callable | None = None, residual: TensorData | None = None,
        norm: NormOf | None = None, settled: bool = False, kept: Kept | None = None,
        soon: TensorData | None = None, scale: TensorData | None = None,
    ) -> TensorData | None:  # fmt: skip
        """residual + fn(layer_norm(x) @ weight^T + bias), in one kernel.

        x [R, K], weight [N, K], bias [N], residual [R, N] -> [R, N]; what is None is
        left out. The result is None, and nothing is done, where no such kernel pays.
        Beside an x of a half type, the bias may be float32. `settled` promises that
        what was started just before writes to no weight or bias. Into the cache of
        `kept`, at its slot, go the last H * E columns, too. `soon` is a weight for one
        of the next calls; a GPU may bring it into its cache meanwhile. Beside `scale`
        [N] the weight is int8, and each of its rows is multiplied by that number.
        """
        return None

    def quantized_linear(
        self, x: TensorData, weight: TensorData, scale: TensorData,
        bias: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """x @ (scale[:, None] * weight)^T + bias, rounded once.

        x [R, K], weight int8 [N, K], scale [N], bias [N] -> [R, N]. Beside an x of a
        half type, scale and bias may be float32. A number of the weight is used R
        times, so for few rows the time is that of reading it: a kernel that converts
        in registers reads a quarter of what float32 takes.
        """
        made = self.linear(x, weight, bias, scale=scale)
        if made is not None:
            return made
        kind = computed(x.dtype)
        # A row's factor is the same for all terms of its sums: it can wait for them.
        turned = self.copy(weight, x.dtype).permute((1, 0))
        out: Any = self.matmul_to(x, turned, kind)
        if out is NotImplemented:  # of halves, which come again as float32
            return out
        out = self.zip(operators.mul, out, self._converted(scale, kind), None, out)
        if bias is not None:
            out = self.bias_activation(out, self._converted(bias, kind), None, out)
        return self._converted(out, x.dtype)

    def linear_gradients(
        self, grad: TensorData, x: TensorData, weight: TensorData | None, dtype: DType,
        sums: DType | None, out: TensorData | None = None,
    ) -> tuple[TensorData | None, TensorData, TensorData | None] | None:  # fmt: skip
        """Gradients of a layer that are the faster for being made together.

        grad [R, N], x [R, K], weight [N, K] -> grad @ weight [R, K]; grad^T @ x [N, K]
        as `dtype`, in `out` if that is given and fits; the sums of grad's columns [N]
        as `sums`. The first and the last may be None: the caller makes them, if it
        wants them, of which None for `weight` or `sums` says that it does not. All is
        None where no such kernel pays.
        """
        return None

    def matmul_to(
        self, a: TensorData, b: TensorData, dtype: DType, out: TensorData | None = None
    ) -> TensorData:
        """`matmul`, whose result is of type `dtype`; sums of halves are float32.

        Into `out` if given, which is of that type and has no gaps.
        """
        made = self.matmul(a, b)
        made = made if made.dtype is dtype else self.copy(made, dtype)
        return self.into(out, made)

    def bias_activation(
        self, x: TensorData, bias: TensorData, fn: Callable | None,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """out = fn(x + bias), or x + bias where `fn` is None: x [R, N], bias [N].

        Into `out` [R, N] if given, which may be x. Floating dtypes.
        """
        out = self.zip(operators.add, x, bias, out=out)
        return out if fn is None else self.map(fn, out, out=out)

    def bias_activation_backward(
        self, grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
    ) -> TensorData:
        """The gradient for x [R, N]: fn_backward(grad, x + bias)."""
        return self.zip(fn_backward, grad, self.zip(operators.add, x, bias))
