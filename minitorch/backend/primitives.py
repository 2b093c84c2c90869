"""The functions that every backend has to bring.

With this file one can see all that a new device needs: memory, elementwise functions,
reductions, a matrix product, indexing, convolution, pooling and random numbers, each an
abstract method of `Primitives`. All else (`minitorch/backend/*.py`) is made of these.

Conventions that hold for all functions of a backend:

- Tensors come and go as `TensorData`. Any strides and any offset are allowed on input,
  negative strides too. Outputs are new and contiguous, except where `out` is given.
- Callers have checked shapes, devices and dtypes (`minitorch/functions` does); floating
  inputs of one call share one dtype unless a line says otherwise.
- Empty tensors (a size of 0) are legal everywhere.
- `fn` is a function of `minitorch/operators.py`, or a user's own scalar function.
- N, C, H, W: batch, channels, height, width.

A backend binds its kernels' launchers to these names, without a function in between:
`matmul = staticmethod(matmul)`. mypy compares each with the signature here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

import minitorch.operators as operators
from minitorch.dtypes import DType, bool_
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]


class Primitives(ABC):
    """What a backend must bring; a class that lacks one cannot be instantiated."""

    # Functions that take float16 and bfloat16 as they are. For all others half tensors
    # are converted to float32, and results back: `minitorch/backend/low_precision.py`.
    takes_half = frozenset({
        "at", "cat", "copy", "copy_all", "copy_into", "cuda_array_interface",
        "dlpack_device", "empty", "fill", "from_numpy", "from_numpy_async", "from_peer",
        "full", "into", "is_pinned", "linear", "linear_gradients", "pin_memory",
        "to_dlpack", "to_numpy", "to_numpy_async",
    })  # fmt: skip
    # Those that do so in some calls, and give NotImplemented for the others.
    tries_half: frozenset[str] = frozenset()

    # ------------------------------------------------------------------------- memory

    @abstractmethod
    def empty(self, shape: Shape, dtype: DType) -> TensorData:
        """A contiguous tensor whose elements have no particular value."""

    @abstractmethod
    def full(self, shape: Shape, value: float, dtype: DType) -> TensorData:
        """A contiguous tensor with `value` everywhere."""

    @abstractmethod
    def from_numpy(self, array: np.ndarray) -> TensorData:
        """A tensor with the array's elements; shares its memory if the device can."""

    @abstractmethod
    def to_numpy(self, a: TensorData) -> np.ndarray:
        """A NumPy array with a's elements; shares memory if the device can."""

    @abstractmethod
    def copy(self, a: TensorData, dtype: DType) -> TensorData:
        """A contiguous copy, converted to `dtype` (floats to ints: toward zero)."""

    @abstractmethod
    def copy_into(self, out: TensorData, a: TensorData) -> None:
        """out[...] = a, any strides on both; a already has out's shape and dtype."""

    # -------------------------------------------------------------------- elementwise

    @abstractmethod
    def map(
        self,
        fn: Callable,
        a: TensorData,
        dtype: DType | None = None,
        out: TensorData | None = None,
    ) -> TensorData:
        """out[i] = fn(a[i]), of type `dtype` (a's if None), into `out` if given."""

    @abstractmethod
    def zip(
        self,
        fn: Callable,
        a: TensorData,
        b: TensorData,
        dtype: DType | None = None,
        out: TensorData | None = None,
    ) -> TensorData:
        """out[i] = fn(a[i], b[i]); a and b broadcast. `out` may be a or b."""

    @abstractmethod
    def where(
        self, condition: TensorData, a: TensorData, b: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """out[i] = a[i] if condition[i] else b[i]; all broadcast. `out` has no gaps."""

    # --------------------------------------------------------------------- reductions

    @abstractmethod
    def reduce(
        self,
        fn: Callable,
        a: TensorData,
        dims: Sequence[int],
        start: float,
        dtype: DType | None = None,
    ) -> TensorData:
        """Fold `fn` over `dims`, from its identity `start`; they keep a size of 1.

        The result does not depend on the number of threads.
        """

    @abstractmethod
    def argmax(self, a: TensorData, dim: int) -> TensorData:
        """int64 positions of the first maximum along `dim` (kept as 1); NaN wins."""

    @abstractmethod
    def argmin(self, a: TensorData, dim: int) -> TensorData:
        """int64 positions of the first minimum along `dim` (kept as 1); NaN wins."""

    @abstractmethod
    def cumsum(self, a: TensorData, dim: int) -> TensorData:
        """out[i] = a[0] + ... + a[i] along `dim`."""

    @abstractmethod
    def sort(
        self, a: TensorData, dim: int, descending: bool
    ) -> tuple[TensorData, TensorData]:
        """Sorted values and their int64 positions; stable; NaN is above all numbers."""

    # ------------------------------------------------------------------------- matmul

    @abstractmethod
    def matmul(self, a: TensorData, b: TensorData) -> TensorData:
        """a [*, M, K] @ b [*, K, N] -> [*, M, N]; the batch dims * broadcast.

        Both have two or more dims. Any dtype but bool.
        """

    # ----------------------------------------------------------------------- indexing

    @abstractmethod
    def gather(self, a: TensorData, dim: int, index: TensorData) -> TensorData:
        """out[i, j] = a[index[i, j], j] for dim = 0; out has index's shape.

        Raises IndexError where an index is outside [0, a.shape[dim]).
        """

    @abstractmethod
    def scatter_add(
        self, a: TensorData, dim: int, index: TensorData, src: TensorData,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """A copy of a with out[index[i, j], j] += src[i, j] for dim = 0; a itself, if
        it is `out`, which has no gaps."""

    @abstractmethod
    def index_copy_(
        self, out: TensorData, dim: int, index: TensorData, src: TensorData
    ) -> None:
        """Write src's slice i into slice index[i] of out's `dim`; the last one wins."""

    # -------------------------------------------------------------------- convolution

    @abstractmethod
    def conv2d(
        self,
        x: TensorData,
        weight: TensorData,
        bias: TensorData | None,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """x [N, C, H, W], weight [O, C/groups, KH, KW] -> [N, O, OH, OW].

        Cross-correlation, as in all deep-learning libraries;
        OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1.
        """

    @abstractmethod
    def conv2d_backward_input(
        self,
        grad: TensorData,
        weight: TensorData,
        x_shape: Shape,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """The gradient for x [N, C, H, W] from grad [N, O, OH, OW]."""

    @abstractmethod
    def conv2d_backward_weight(
        self,
        grad: TensorData,
        x: TensorData,
        weight_shape: Shape,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> TensorData:
        """The gradient for weight [O, C/groups, KH, KW] from grad [N, O, OH, OW]."""

    # ------------------------------------------------------------------------ pooling

    @abstractmethod
    def max_pool2d(
        self, x: TensorData, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
    ) -> tuple[TensorData, TensorData]:
        """x [N, C, H, W] -> maxima and their int64 positions h * W + w in the plane.

        The first maximum of a window wins; NaN counts as the largest. A window of
        padding alone has -inf, at position 0.
        """

    @abstractmethod
    def max_pool2d_backward(
        self, grad: TensorData, index: TensorData, x_shape: Shape
    ) -> TensorData:
        """grad [N, C, OH, OW] added up at the positions `index` of each plane."""

    @abstractmethod
    def avg_pool2d(
        self,
        x: TensorData,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        count_include_pad: bool,
    ) -> TensorData:
        """x [N, C, H, W] -> means of windows; padding counts as 0, or not at all."""

    @abstractmethod
    def avg_pool2d_backward(
        self,
        grad: TensorData,
        x_shape: Shape,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        count_include_pad: bool,
    ) -> TensorData:
        """The gradient for x [N, C, H, W] from grad [N, C, OH, OW]."""

    # ------------------------------------------------------------------------- random

    @abstractmethod
    def uniform(self, shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
        """Uniform numbers in [0, 1): element i from word i % 4 of Philox block
        `offset + i // 4` as (word >> 8) / 2**24.

        The block number's low and high 32 bits are `low` and `high` of
        `operators.philox`, the seed's are `key0` and `key1`. float64 has the same
        values as float32.
        """

    @abstractmethod
    def normal(self, shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
        """Standard normal numbers: elements 4b, 4b+1 from `operators.box_muller` of
        words 0 and 1 of block offset + b, elements 4b+2, 4b+3 from words 2 and 3."""

    @abstractmethod
    def randint(
        self, low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
    ) -> TensorData:
        """Integers in [low, high): low + (word * (high - low) >> 32); words as in
        uniform. high - low is at most 2**31."""

    @abstractmethod
    def dropout(self, x: TensorData, p: float, seed: int, offset: int) -> TensorData:
        """x / (1 - p) where word i >= p * 2**32 (words as in uniform), else 0.

        The word belongs to the row-major index of the element. 1 / (1 - p) is rounded
        to x's dtype before it multiplies.
        """

    # ------------------------------------------- what the defaults are written with

    def number(self, value: float, dtype: DType) -> TensorData:
        """`value` as a tensor without dims, which broadcasts to any shape.

        Nobody writes to it: a backend may return the same one again.
        """
        return self.full((), value, dtype)

    def arange(
        self, start: float, step: float, count: int, dtype: DType, last: float
    ) -> TensorData:
        """`count` numbers: start, start + step, ..., and `last` in the end."""
        if type(start) is type(step) is int and dtype.category == 1:
            end = start + step * count
            return self.from_numpy(np.arange(start, end, step, dtype=dtype.numpy))
        values = start + step * np.arange(count)
        values[-1:] = last
        return self.from_numpy(values.astype(dtype.numpy))

    def fill(self, out: TensorData, value: float) -> None:
        """out[...] = value"""
        self.copy_into(out, self.number(value, out.dtype).expand(out.shape))

    def clamp(
        self, a: TensorData, low: float | None, high: float | None,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """a raised to `low`, then lowered to `high`, unless None. `out` has no gaps."""
        for fn, bound in ((operators.maximum, low), (operators.minimum, high)):
            if bound is not None:
                number = self.number(bound, a.storage.dtype)
                a = out = self.zip(fn, a, number, None, out)
        return a

    def zip3(
        self, fn: Callable, a: TensorData, b: TensorData, c: TensorData, value: float,
        out: TensorData | None = None,
    ) -> TensorData:  # fmt: skip
        """out[i] = fn(a[i], b[i], c[i], value) for lerp, addcmul or addcdiv.

        All broadcast; `out` may share memory with each.
        """
        zip, number = self.zip, self.number
        if fn is operators.lerp:
            rest = zip(operators.sub, number(value, c.dtype), c)
            far = zip(operators.ge, c, rest, bool_)
            share = self.where(far, self.map(operators.neg, rest), c)
            step = zip(operators.mul, zip(operators.sub, b, a), share)
            return zip(operators.add, self.where(far, b, a), step, None, out)
        op = operators.mul if fn is operators.addcmul else operators.div
        step = zip(op, b, c) if value == 1 else zip(op, self._mul(b, value), c)
        return zip(operators.add, a, step, None, out)

    def random_(
        self, out: TensorData, normal: bool, seed: int, offset: int,
        scale: float, shift: float,
    ) -> None:  # fmt: skip
        """out = numbers of `normal`, else of `uniform`, * scale + shift."""
        draw = self.normal if normal else self.uniform
        made = draw(out.shape, out.dtype, seed, offset)
        if scale != 1.0:
            self.zip(operators.mul, made, self.number(scale, out.dtype), None, made)
        if shift != 0.0:
            self.zip(operators.add, made, self.number(shift, out.dtype), None, made)
        self.copy_into(out, made)

    def into(self, out: TensorData | None, made: TensorData) -> TensorData:
        """`made`, or `out` with its elements if there is one."""
        if out is None or out is made:
            return made
        self.copy_into(out, made)
        return out

    def _converted(self, a: TensorData, dtype: DType) -> TensorData:
        """`a` itself if it has that dtype already, else a converted copy."""
        return a if a.dtype is dtype else self.copy(a, dtype)

    def _sum(self, a: TensorData, dims: Sequence[int]) -> TensorData:
        """The sum over `dims`, which keep a size of 1."""
        return self.reduce(operators.add, a, dims, 0)

    def _mul(self, a: TensorData, b: TensorData | float) -> TensorData:
        """a * b, where b may be a number."""
        b = b if isinstance(b, TensorData) else self.number(b, a.dtype)
        return self.zip(operators.mul, a, b)
