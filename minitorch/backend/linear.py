"""What follows the matrix product of a layer: a bias, and an activation.

With this file a backend adds a bias to every row of a matrix and applies a function to
the sums, by two elementwise operations; a kernel of its own reads and writes once. It
multiplies by a weight of bytes or of four bits, too (`quantized_linear`).
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
        the weight is quantized, as for `quantized_linear`.
        """
        return None

    def quantized_linear(
        self, x: TensorData, weight: TensorData, scale: TensorData,
        bias: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """x @ w^T + bias, rounded once, where w is what `dequantize` says.

        x [R, K], weight int8 [N, K], scale [N], bias [N] -> [R, N]; a weight of four
        bits is int8 [N, G, S / 2], its scale [N, G]. Beside an x of a half type, scale
        and bias may be float32. A number of the weight is used R times, so for few rows
        the time is that of reading it: a kernel that converts in registers reads a
        quarter of what float32 takes, or an eighth.
        """
        made = self.quantized_few(x, weight, scale, bias)
        if made is not None:
            return made
        kind, by_row = computed(x.dtype), len(weight.shape) == 2
        # A row's factor is the same for all terms of its sums: it can wait for them.
        w = (
            self.copy(weight, x.dtype)
            if by_row
            else self.dequantize(weight, scale, x.shape[1], x.dtype)
        )
        out: Any = self.matmul_to(x, w.permute((1, 0)), kind)
        if out is NotImplemented:  # of halves, which come again as float32
            return out
        if by_row:
            out = self.zip(operators.mul, out, self._converted(scale, kind), None, out)
        if bias is not None:
            out = self.bias_activation(out, self._converted(bias, kind), None, out)
        return self._converted(out, x.dtype)

    def quantized_few(
        self, x: TensorData, weight: TensorData, scale: TensorData,
        bias: TensorData | None,
    ) -> TensorData | None:  # fmt: skip
        """`quantized_linear` in one kernel; None where no such kernel pays."""
        return self.linear(x, weight, bias, scale=scale)

    def dequantize(
        self, weight: TensorData, scale: TensorData, columns: int, dtype: DType
    ) -> TensorData:
        """The floats [N, columns] that whole numbers stand for, rounded once.

        weight int8 [N, K] and scale [N]: scale[n] * weight[n, k]. Or of four bits, int8
        [N, G, S / 2] and scale [N, G]: G groups of S numbers, of which the last ones
        may be too many. Byte j of a group is 16 * high + low + 8, where low is its
        number j and high its number S / 2 + j: both halves of a group lie as they are
        multiplied, so that a vector of bytes becomes two of neighbours.
        """
        made = self.unpack_fours(weight, scale, columns, dtype)
        if made is not None:
            return made
        kind = computed(dtype)
        w, factor = self.copy(weight, kind), self.copy(scale, kind)
        rows, factors = scale.shape[0], (*scale.shape, 1)
        if len(weight.shape) == 2:
            floats = self._mul(w, TensorData(factor.storage, factors))
            return self._converted(floats, dtype)
        sixteen, eight = self.number(16, kind), self.number(8, kind)
        low = self.zip(operators.remainder, w, sixteen)
        pair = (
            self.zip(operators.sub, low, eight, None, low),
            self.zip(operators.floor_divide, w, sixteen),
        )
        _, groups, half = weight.shape
        out = self.empty((rows, groups, 2 * half), kind)
        for i, numbers in enumerate(pair):
            floats = self._mul(numbers, TensorData(factor.storage, factors))
            self.copy_into(out.slice(2, i * half, half), floats)
        out = TensorData(out.storage, (rows, groups * 2 * half)).slice(1, 0, columns)
        return self._converted(out, dtype)

    def unpack_fours(
        self, weight: TensorData, scale: TensorData, columns: int, dtype: DType
    ) -> TensorData | None:
        """`dequantize` of four bits by a kernel; None: there is none for these."""
        return None

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
