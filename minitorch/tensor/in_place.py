"""Changes in place, and how the graph follows them.

With this file one can see what `a += b` and `a[0] = 1` do: the memory is written, and
where a gradient will be wanted, the change is recorded for a view and its base alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch.arguments import (
    check_floating,
    check_index,
    dim_in,
    dividends,
    filler,
    numpy_names,
    only_bool,
    times_alpha,
    without_bools,
)
from minitorch.autodiff import Variable, modes
from minitorch.dtypes import Number, bool_
from minitorch.functions import elementwise, indexing, random, ternary
from minitorch.functions.choice import clamped_type
from minitorch.functions.operands import (
    cast,
    check_alike,
    check_broadcast,
    check_same_device,
    is_tensor,
    operands,
)
from minitorch.random import Generator, default_generator
from minitorch.tensor.hooks import KeepGrad
from minitorch.tensor_data import TensorData, broadcast_shapes

if TYPE_CHECKING:
    from minitorch.tensor.core import Tensor


def mapped(name: str, fn: Callable, op: Callable) -> Any:
    """The method `name`: op(self) in place, which is fn(x) of each element x."""

    def method(self: Any) -> Tensor:
        raw, backend = self.raw, self.backend
        if not self.dtype.is_floating_point:
            return self._replace(name, op)
        return self.assign_(op, lambda: backend.map(fn, raw, out=raw))

    method.__name__, method.__doc__ = name, f"`{op.__name__}` in place."
    return method


class InPlace(Variable):
    """The methods that change a tensor, and its place in the graph."""

    __slots__ = ("_base", "_view_version")

    _base: Tensor | None  # the tensor that this is a view of
    _view_version: int  # of a view

    def assign_(
        self: Any,
        recorded: Callable[[Tensor], Tensor],
        quietly: Callable[[], Any],
        *others: Any,
    ) -> Tensor:
        """Change this tensor's memory, and its place in the graph if need be.

        Args:
            recorded: from a copy of this tensor as it was to the new values, recorded.
            quietly: writes the new values straight into the memory.
            others: the other operands; the change is recorded if one requires grad.
        """
        wanted, raw = False, self.raw
        if modes.get()[0]:
            for x in (self, *others):
                if isinstance(x, InPlace) and (x.requires_grad or x._base is not None):
                    wanted = x.edge() is not None or wanted
        if not raw.contiguous:
            self._check_places()
        storage = raw.storage
        if not wanted:
            quietly()
            storage.version += 1
            return self
        if self.is_leaf and self.requires_grad:
            raise RuntimeError(
                "in-place change of a leaf that requires grad; put it under "
                "no_grad(), or make a new tensor"
            )
        if self._base is not None:
            return self._assign_through_base(self._base, recorded, *others)
        old = self.wrap(self.backend.copy(self.raw, self.dtype))
        old.node, old.output_index = self.node, self.output_index
        old.requires_grad = self.requires_grad
        new = recorded(old)
        self.backend.copy_into(self.raw, new.raw)
        storage.version += 1
        storage.rebased = storage.version
        self._become(new)
        return self

    def _check_places(self: Any) -> None:
        """Each element must have a place of its own."""
        sizes = zip(self.raw.shape, self.raw.strides)
        if any(s == 0 and n > 1 for n, s in sizes) and self.numel():
            raise RuntimeError(
                f"in-place change of an expanded tensor of shape {self.raw.shape} and "
                f"strides {self.raw.strides}: several elements are one place in "
                f"memory; clone() it first"
            )

    def _become(self: Any, other: Tensor) -> None:
        """Take other's place in the graph; `retain_grad` holds for the new one."""
        table = self.node.hooks if self.node is not None else None
        hooks = (table or {}).get(self.output_index, [])
        keeping = [h for h in hooks if type(h) is KeepGrad and h.tensor() is self]
        for hook in keeping:
            hooks.remove(hook)
        self.node, self.output_index = other.node, other.output_index
        self.requires_grad = other.requires_grad
        if keeping:
            self.retain_grad()

    # A view and its base share memory, so a recorded change of one is a change of the
    # other, and must be in the graph of both. The base is the one that keeps the
    # graph: a view is changed by writing into its window of the base, and a view that
    # is older than the last change of its base is taken from it again.

    def view_of(self: Any, source: Tensor) -> Tensor:
        """Remember that this shares the memory of `source`."""
        self._base = source if source._base is None else source._base
        self._view_version = self.raw.storage.version
        return self

    def renew_view(self: Any) -> None:
        """Take this view again if a recorded operation has changed its base since."""
        storage, base = self.raw.storage, self._base
        if base is None or self._view_version >= storage.rebased:
            return
        if modes.get()[0]:
            where = self._positions_in(base)
            again = indexing.IndexSelect.apply(base.reshape(-1), 0, where)
            self._become(again.reshape(self.raw.shape))
            self._view_version = storage.version

    def _assign_through_base(
        self: Any, base: Tensor, recorded: Callable[[Tensor], Tensor], *others: Any
    ) -> Tensor:
        """Change this view by a recorded change of its window of the base."""
        where = self._positions_in(base)

        def whole(old: Tensor) -> Tensor:
            flat = old.reshape(-1)
            part = indexing.IndexSelect.apply(flat, 0, where).reshape(self.raw.shape)
            new = recorded(part).reshape(-1)
            return indexing.IndexCopy.apply(flat, 0, where, new).reshape(old.raw.shape)

        base.assign_(whole, lambda: None, self, *others)
        self.renew_view()
        return self

    def _positions_in(self: Any, base: Tensor) -> Tensor:
        """Where this view's elements lie in the flattened base, int64 [numel]."""
        if not base.raw.is_contiguous():
            raise RuntimeError(
                f"in-place change, recorded, of a view of a tensor with shape "
                f"{base.raw.shape} and strides {base.raw.strides}: only views of "
                f"contiguous tensors can be changed so; take base.contiguous() first"
            )
        raw, storage = self.raw, base.arange_like().raw.storage
        offset = raw.offset - base.raw.offset
        where = TensorData(storage, raw.shape, raw.strides, offset)
        return self.wrap(where).reshape(-1)

    def _apart(self: Any, b: TensorData) -> TensorData:
        """`b`, or a copy where it is another window of the memory that is written."""
        a = self.raw
        if b.storage is not a.storage:
            return b
        same = (b.shape, b.strides, b.offset) == (a.shape, a.strides, a.offset)
        return b if same else self.backend.copy(b, b.dtype)

    def _zip_(
        self: Any,
        name: str,
        fn: Callable,
        op: Callable,
        other: Any,
        checked: Callable = operands,
    ) -> Tensor:
        a, b = checked(name, self, other)
        if a is not self:  # computed in the wider type, and then converted
            return self._replace(name, lambda old: op(old, b), b)
        x, y = self.raw, b.raw
        if x.shape != y.shape and check_broadcast(name, x.shape, y.shape) != x.shape:
            raise ValueError(
                f"{name}: the result of shapes {x.shape} and {y.shape} does not fit "
                f"into the first in place"
            )
        return self.assign_(
            lambda old: op(old, b),
            lambda: self.backend.zip(
                fn, x, y if y.storage is not x.storage else self._apart(y), None, x
            ),
            b,
        )

    def _zip3_(
        self: Any, name: str, op: Any, a: Tensor, b: Tensor, c: Any, *number: Number
    ) -> Tensor:
        """op.apply(self, b, c, *number) in place, where `a` is self in their type."""
        raw, y = self.raw, b.raw
        z = getattr(c, "raw", y)
        fits = raw.shape == y.shape == z.shape
        fits = fits or broadcast_shapes(raw.shape, y.shape, z.shape) == raw.shape

        def new(old: Tensor) -> Any:
            return op.apply(cast(old, a.dtype), b, c, *number)

        if a is not self or not fits:
            return self._replace(name, new, b, c)
        return self.assign_(new, lambda: op.compute(raw, b, c, *number, raw), b, c)

    def _replace(self: Any, name: str, op: Callable, *others: Any) -> Tensor:
        """op(self) in place, where `others` are its other operands."""

        def new(old: Tensor) -> Tensor:
            out = op(old)
            self._check_fits(name, out)
            if out.raw.shape != self.raw.shape:
                raise ValueError(
                    f"{name}: the result is {out.raw.shape}, which does not fit into "
                    f"{self.raw.shape} in place"
                )
            return cast(out, self.dtype)

        def quietly() -> None:
            self.backend.copy_into(self.raw, new(self.wrap(self.raw)).raw)

        return self.assign_(new, quietly, *others)

    def _check_fits(self: Any, name: str, new: Tensor) -> None:
        if new.dtype.category > self.dtype.category:
            raise TypeError(
                f"{name}: the result is {new.dtype.name}, which does not fit into a "
                f"{self.dtype.name} tensor in place"
            )

    def add_(self: Any, other: Any, *, alpha: Number = 1) -> Tensor:
        """self += alpha * other"""
        if alpha != 1:
            other = times_alpha("add_", self, other, alpha)
        return self._zip_("add_", operators.add, operator.add, other)

    def sub_(self: Any, other: Any, *, alpha: Number = 1) -> Tensor:
        """self -= alpha * other"""
        if alpha != 1:
            other = times_alpha("sub_", self, other, alpha)
        return self._zip_("sub_", operators.sub, operator.sub, other, without_bools)

    def mul_(self: Any, other: Any) -> Tensor:
        """self *= other"""
        return self._zip_("mul_", operators.mul, operator.mul, other)

    def div_(self: Any, other: Any) -> Tensor:
        """self /= other"""
        if not self.dtype.is_floating_point:
            raise TypeError(
                f"div_: the result is float32, which does not fit into a "
                f"{self.dtype.name} tensor in place"
            )
        return self._zip_("div_", operators.div, operator.truediv, other)

    def lerp_(self: Any, end: Tensor, weight: Any) -> Tensor:
        """self += weight * (end - self)"""
        a, end, weight = ternary.lerp_operands("lerp_", self, end, weight)
        return self._zip3_("lerp_", ternary.Lerp, a, end, weight)

    def addcmul_(
        self: Any, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1
    ) -> Tensor:
        """self += value * tensor1 * tensor2"""
        given = ternary.added_operands("addcmul_", self, tensor1, tensor2, value)
        return self._zip3_("addcmul_", ternary.Addcmul, *given)

    def addcdiv_(
        self: Any, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1
    ) -> Tensor:
        """self += value * tensor1 / tensor2"""
        check_floating("addcdiv_", tensor1)
        given = ternary.added_operands("addcdiv_", self, tensor1, tensor2, value)
        return self._zip3_("addcdiv_", ternary.Addcdiv, *given)

    def copy_(self: Any, other: Any, non_blocking: bool = False) -> Tensor:
        """The numbers of `other`, converted and broadcast to this tensor.

        With `non_blocking` nobody waits for a copy to "cuda" from pinned memory.
        """
        raw = getattr(other, "raw", None)
        if raw is not None and len(raw.shape) > len(self.raw.shape):
            raise ValueError(
                f"copy_: a tensor of shape {other.raw.shape} does not fit into one of "
                f"shape {self.raw.shape}; drop dimensions first, with reshape()"
            )
        if non_blocking and is_tensor(other):
            other = other.to(self.device, non_blocking=True)
        return indexing.overwrite(self, (), other)

    def fill_(self: Any, value: Any) -> Tensor:
        """`value`, a number or a tensor without dims, everywhere."""
        if is_tensor(value) and value.dim():
            raise ValueError(
                f"fill_: the value is a tensor of shape {value.raw.shape}; expected a "
                f"number or a tensor without dimensions; use copy_()"
            )
        return indexing.overwrite(self, (), value)

    def zero_(self: Any) -> Tensor:
        """0 everywhere."""
        return self.assign_(
            lambda old: indexing.filled(old, 0),
            lambda: self.backend.fill(self.raw, 0),
        )

    def clamp_(self: Any, min: Any = None, max: Any = None) -> Tensor:
        """Values below `min` and above `max` set to them, in place."""
        raw, backend = self.raw, self.backend
        out = raw if raw.contiguous else None
        if min is max is None or clamped_type(self, min, max) is not raw.storage.dtype:
            return self._replace("clamp_", lambda old: old.clamp(min, max), min, max)
        return self.assign_(
            lambda old: old.clamp(min, max),
            lambda: backend.into(raw, backend.clamp(raw, min, max, out)),
        )

    def masked_fill_(self: Any, mask: Tensor, value: Any) -> Tensor:
        """`value` where the mask holds, in place."""
        name, raw, backend = "masked_fill_", self.raw, self.backend
        given = filler(self, value).raw
        if only_bool(name, mask).raw.shape != raw.shape:
            return self._replace(name, lambda old: old.masked_fill(mask, value), value)
        check_same_device(name, self, mask)
        chosen, out = self._apart(mask.raw), raw if raw.contiguous else None
        return self.assign_(
            lambda old: old.masked_fill(mask, value),
            lambda: backend.into(raw, backend.where(chosen, given, raw, out)),
            value,
        )

    @numpy_names
    def index_copy_(self: Any, dim: int, index: Tensor, source: Tensor) -> Tensor:
        """Slice i of `source` in the place of slice index[i] of `dim`, in place."""
        dim, index = self._slices("index_copy_", dim, index, source)
        return self.assign_(
            lambda old: indexing.IndexCopy.apply(old, dim, index, source),
            lambda: self.backend.index_copy_(
                self.raw, dim, index.raw, self._apart(source.raw)
            ),
            source,
        )

    @numpy_names
    def index_add_(self: Any, dim: int, index: Tensor, source: Tensor) -> Tensor:
        """Slice i of `source` added to slice index[i] of `dim`, in place."""
        dim, index = self._slices("index_add_", dim, index, source)
        fn = self.backend.index_add
        return self._indexed_(indexing.IndexAdd, fn, dim, index, source)

    def _slices(
        self: Any, name: str, dim: int, index: Tensor, source: Tensor
    ) -> tuple[int, Tensor]:
        """`dim` and `index`, of a `source` that fits."""
        dim, index = dim_in(name, self, dim), check_index(name, self, index, 1)
        check_alike(name, self, source)
        fits = list(self.raw.shape)
        fits[dim : dim + 1] = index.raw.shape if fits else ()
        if source.raw.shape != tuple(fits):
            raise ValueError(
                f"{name}: the source is {source.raw.shape} and the index "
                f"{index.raw.shape}; for dimension {dim} of a tensor of shape "
                f"{self.raw.shape} the source must be {tuple(fits)}"
            )
        return dim, index

    @numpy_names
    def scatter_(self: Any, dim: int, index: Tensor, src: Any) -> Tensor:
        """`scatter` in place."""
        src = indexing.tensor_or_full("scatter_", self, index, src)
        given = indexing.scattered("scatter_", self, dim, index, src)
        return self._indexed_(indexing.Scatter, self.backend.scatter, *given)

    @numpy_names
    def scatter_add_(self: Any, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """`scatter_add` in place."""
        given = indexing.scattered("scatter_add_", self, dim, index, src)
        return self._indexed_(indexing.ScatterAdd, self.backend.scatter_add, *given)

    def _indexed_(
        self: Any, op: Any, fn: Callable, dim: int, index: Tensor, src: Tensor
    ) -> Tensor:
        """op(self, dim, index, src) in place, by `fn` of the backend if it can."""
        raw, backend = self.raw, self.backend

        def quietly() -> None:
            places, given = (
                x if x.storage is not raw.storage else backend.copy(x, x.dtype)
                for x in (index.raw, src.raw)
            )
            out = raw if raw.contiguous else None
            backend.into(raw, fn(raw, dim, places, given, out))

        return self.assign_(lambda old: op.apply(old, dim, index, src), quietly, src)

    def uniform_(
        self: Any, low: float = 0.0, high: float = 1.0, *,
        generator: Generator | None = None,
    ) -> Tensor:  # fmt: skip
        """Uniform random numbers in [low, high), in place."""
        return self._random_("uniform_", generator, False, high - low, low)

    def normal_(
        self: Any, mean: float = 0.0, std: float = 1.0, *,
        generator: Generator | None = None,
    ) -> Tensor:  # fmt: skip
        """Normal random numbers, in place."""
        return self._random_("normal_", generator, True, std, mean)

    def bernoulli_(
        self: Any, p: Any = 0.5, *, generator: Generator | None = None
    ) -> Tensor:
        """1 with probability p, else 0, in place; p is a number, or a tensor of them
        that is expanded."""
        if is_tensor(p):
            return self.copy_(random.bernoulli(p.expand_as(self), generator=generator))
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"bernoulli_: p is {p}; it must be from 0 to 1")
        return self.copy_(random.below(self, p, generator or default_generator))

    def _random_(
        self: Any, name: str, generator: Generator | None, normal: bool, *affine: float
    ) -> Tensor:
        check_floating(name, self)
        chosen = generator or default_generator
        if chosen.sequence == "pytorch":
            draw = chosen.normal if normal else chosen.uniform
            made = self.wrap(draw(self.backend, self.raw.shape, self.raw.dtype))
            return self.copy_(made * affine[0] + affine[1])
        numbers = normal, *chosen.take(self.numel()), *affine

        def drawn(old: Tensor) -> Tensor:
            new = old.detach().clone()
            self.backend.random_(new.raw, *numbers)
            return indexing.SliceAssign.apply(old, new, ())

        return self.assign_(drawn, lambda: self.backend.random_(self.raw, *numbers))

    abs_ = mapped("abs_", operators.abs, elementwise.abs)
    neg_ = mapped("neg_", operators.neg, elementwise.neg)
    sign_ = mapped("sign_", operators.sign, elementwise.sign)
    floor_ = mapped("floor_", operators.floor, elementwise.floor)
    ceil_ = mapped("ceil_", operators.ceil, elementwise.ceil)
    round_ = mapped("round_", operators.round, elementwise.round)
    exp_ = mapped("exp_", operators.exp, elementwise.exp)
    expm1_ = mapped("expm1_", operators.expm1, elementwise.expm1)
    log_ = mapped("log_", operators.log, elementwise.log)
    log1p_ = mapped("log1p_", operators.log1p, elementwise.log1p)
    sqrt_ = mapped("sqrt_", operators.sqrt, elementwise.sqrt)
    rsqrt_ = mapped("rsqrt_", operators.rsqrt, elementwise.rsqrt)
    reciprocal_ = mapped("reciprocal_", operators.reciprocal, elementwise.reciprocal)
    sin_ = mapped("sin_", operators.sin, elementwise.sin)
    cos_ = mapped("cos_", operators.cos, elementwise.cos)
    tanh_ = mapped("tanh_", operators.tanh, elementwise.tanh)
    erf_ = mapped("erf_", operators.erf, elementwise.erf)
    sigmoid_ = mapped("sigmoid_", operators.sigmoid, elementwise.sigmoid)
    relu_ = mapped("relu_", operators.relu, elementwise.relu)

    def square_(self: Any) -> Tensor:
        """self *= self"""
        raw, backend = self.raw, self.backend
        if self.dtype is bool_:
            return self._replace("square_", elementwise.square)
        return self.assign_(
            elementwise.square,
            lambda: backend.zip(operators.mul, raw, raw, None, raw),
        )

    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_

    def __ifloordiv__(self: Any, other: Any) -> Tensor:
        fn = operators.floor_divide
        return self._zip_("//=", fn, operator.floordiv, other, dividends)

    def __imod__(self: Any, other: Any) -> Tensor:
        return self._zip_("%=", operators.remainder, operator.mod, other, dividends)

    def __ipow__(self: Any, other: Any) -> Tensor:
        squared = not is_tensor(other) and other == 2
        if squared or not self.dtype.is_floating_point:
            return self._replace("**=", lambda old: old**other, other)
        return self._zip_("**=", operators.pow, operator.pow, other)

    pow_, remainder_, floor_divide_ = __ipow__, __imod__, __ifloordiv__
    clip_ = clamp_

    def __iand__(self: Any, other: Any) -> Tensor:
        return self._logical_("&", operators.logical_and, operator.and_, other)

    def __ior__(self: Any, other: Any) -> Tensor:
        return self._logical_("|", operators.logical_or, operator.or_, other)

    def __ixor__(self: Any, other: Any) -> Tensor:
        return self._logical_("^", operators.logical_xor, operator.xor, other)

    def _logical_(self: Any, sign: str, fn: Callable, op: Callable, other: Any) -> Any:
        other = only_bool(sign, other, only_bool(sign, self))
        return self._zip_(sign, fn, op, other)
