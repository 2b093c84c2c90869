"""Half types on backends that compute in float32: widen, compute, round once.

With this file every function of a backend takes tensors of 16-bit floats, float16 and
bfloat16. Its inputs are converted to float32, which is exact; the function runs as it
is, sums included; and what it returns is rounded to the half type, once:

    softmax(a)   =   round(softmax(widen(a)))

This is what the units of GPUs do, too, whose products and sums of half numbers are
float32. A tensor finds these functions by its dtype (`Tensor.backend`), so that float32
tensors meet nothing of this. A function that reads and writes half types by itself says
so by its name in the backend's `takes_half`, and is called as it is; one that does so
for some operands only, in `tries_half`: where it gives NotImplemented, it has done
nothing, and is called with float32.

Source: Micikevicius et al., "Mixed precision training", 2018, which shows why sums must
be float32 and storage need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import minitorch.operators as operators
from minitorch.backend.around import Around
from minitorch.backend.base import Backend
from minitorch.dtypes import DType, finfo, float32
from minitorch.tensor_data import Storage, TensorData

# Of these only so many outputs are rounded: the others are statistics, which the
# backward pass needs as they are, and a sum that a half type may have no room for.
ROUNDED = {
    "batch_norm": 1,
    "cross_entropy": 0,
    "cross_entropy_slopes": 0,
    "dropout_residual_layer_norm": 1,
    "layer_norm": 1,
    "mean_loss": 1,
    "mean_nll": 1,
    "rms_norm": 1,
    "sum_of_squares": 0,
}

# Which arguments a function writes to.
WRITTEN = {
    "map": (3,),
    "zip": (4,),
    "zip3": (5,),
    "where": (3,),
    "clamp": (3,),
    "bias_activation": (3,),
    "cross_entropy_backward": (5,),
    "cross_entropy_slopes": (0,),
    "index_add": (4,),
    "index_copy_": (0,),
    "scatter": (4,),
    "scatter_add": (4,),
    "matmul_to": (3,),
    "attention": (0,),
    "attention_backward": (0, 1, 2),
    "paged_attention": (0,),
    "sgd_step": (0, 2),
    "adam_step": (0, 2, 3),
}


class HalfNumber(Storage):
    """A Python number in a half type, and in float32.

    Beside half tensors it counts as it is in float32, as in PyTorch: `x * 0.1` is
    rounded once.
    """

    __slots__ = ("wide",)

    wide: Storage


def unrounded(a: TensorData) -> TensorData:
    """`a`, or the number in float32 that it was made of."""
    if type(a.storage) is not HalfNumber:
        return a
    return TensorData(a.storage.wide, a.shape, a.strides, a.offset)


class LowPrecision(Around):
    """The functions of `backend`, for calls in which there are half tensors."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, self._in_float32)

    def _in_float32(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        if name in self._backend.takes_half:
            return fn
        written = WRITTEN.get(name, ())
        last, tries = ROUNDED.get(name), name in self._backend.tries_half

        @wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            if tries and (found := fn(*args, **kwargs)) is not NotImplemented:
                return found
            run = _Call(self._backend, (*args, *kwargs.values()))
            wide = [run.widen(a, i in written) for i, a in enumerate(args)]
            named = {key: run.widen(a, key == "out") for key, a in kwargs.items()}
            return run.rounded(fn(*wide, **named), last)

        return call

    def number(self, value: float, dtype: DType) -> TensorData:
        """`value` without dims; see `HalfNumber`."""
        wide = self._backend.number(value, float32 if dtype.half else dtype)
        if not dtype.half:
            return wide
        narrow = self._backend.full((), value, dtype)
        made = HalfNumber(narrow.storage.array, dtype, narrow.storage.device)
        made.wide = wide.storage
        return TensorData(made, ())

    random_: Any = Backend.random_  # by the functions of this class

    def uniform(self, shape: Any, dtype: DType, seed: int, offset: int) -> TensorData:
        """Uniform numbers in [0, 1): none is rounded up to 1."""
        backend = self._backend
        made = backend.uniform(shape, float32, seed, offset)
        below = backend.number(1 - finfo(dtype).eps / 2, float32)
        return backend.copy(backend.zip(operators.minimum, made, below), dtype)


class _Call:
    """One call in float32.

    Attributes:
        target: the type to which float32 results are rounded; None: they stay.
        known: for each argument by its id, its float32 form.
        written: pairs of an argument that is written, and its float32 form.
    """

    def __init__(self, backend: Backend, args: Sequence[Any]) -> None:
        self.backend = backend
        kinds = [arg for arg in args if isinstance(arg, DType)]
        kinds = kinds or [a.storage.dtype for a in _tensors(args)]
        self.target = next((kind for kind in kinds if kind.half), None)
        self.known: dict[int, TensorData] = {}
        self.written: list[tuple[TensorData, TensorData]] = []

    def widen(self, arg: Any, written: bool) -> Any:
        """`arg` with float32 for half types, itself or in a sequence."""
        if isinstance(arg, DType):
            return float32 if arg.half else arg
        if isinstance(arg, (list, tuple)):
            return type(arg)([self.widen(a, written) for a in arg])
        if not (isinstance(arg, TensorData) and arg.storage.dtype.half):
            return arg
        wide = self.known.get(id(arg))
        if wide is None:
            wide = self.known[id(arg)] = self._wide(arg)
        if written:
            self.written.append((arg, wide))
        return wide

    def _wide(self, a: TensorData) -> TensorData:
        if self.target is not None and (number := unrounded(a)) is not a:
            return number
        if a.contiguous:
            return self.backend.copy(a, float32)
        # In the order of memory, and of what is repeated once: reading is then fast,
        # and a transposed or an expanded matrix remains one.
        order = sorted(range(a.dims), key=lambda dim: -a.strides[dim])
        sizes = tuple([n if step else 1 for n, step in zip(a.shape, a.strides)])
        once = TensorData(a.storage, sizes, a.strides, a.offset).permute(order)
        wide = self.backend.copy(once, float32)
        steps = dict(zip(order, wide.strides))
        strides = tuple([s and steps[dim] for dim, s in enumerate(a.strides)])
        return TensorData(wide.storage, a.shape, strides)

    def rounded(self, result: Any, last: int | None = None) -> Any:
        """What was written, and what is returned (the first `last` of it), rounded."""
        for a, wide in self.written:
            self.backend.copy_into(a, self.backend.copy(wide, a.dtype))
        if isinstance(result, (list, tuple)):
            first, rest = result[:last], result[len(result) if last is None else last :]
            return (*[self._round(r) for r in first], *rest)
        return result if last == 0 else self._round(result)

    def _round(self, result: Any) -> Any:
        for a, wide in self.written:
            if isinstance(result, TensorData) and result.storage is wide.storage:
                return a
        if not isinstance(result, TensorData) or self.target is None:
            return result
        if result.storage.dtype is not float32:
            return result
        return self.backend.copy(result, self.target)


def _tensors(args: Any) -> list[TensorData]:
    """All tensors among some arguments, also those in sequences."""
    found = []
    for arg in args:
        if isinstance(arg, TensorData):
            found.append(arg)
        elif isinstance(arg, (list, tuple)):
            found += _tensors(arg)
    return found
