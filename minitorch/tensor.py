"""The tensor: numbers in any number of dimensions, with arithmetic and gradients.

With this file one can follow what an expression does. A method of `Tensor` is one to
three lines and holds no mathematics: it gets its operands ready and applies an
operation of `minitorch/functions`, which asks the tensor's backend for the values.
Names and meanings are PyTorch's. New tensors come from `minitorch/creation.py`.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from minitorch import dtypes, operators
from minitorch.arguments import (
    check_cat,
    check_floating,
    check_gather,
    check_index,
    check_pinnable,
    checked_list,
    completed,
    dividends,
    existing_dim,
    expanded_shape,
    filler,
    int_sequence,
    not_bool,
    not_empty,
    only_bool,
    parse_to,
    reduced_dims,
    shape_for,
    stack_dim,
    start_gradient,
    times_alpha,
    without_bools,
)
from minitorch.autodiff import Edge, Node, Variable, backpropagate, grad_mode
from minitorch.backend import get_backend, loaded_backends
from minitorch.dtypes import DType
from minitorch.function import Function
from minitorch.functions import elementwise as ew
from minitorch.functions import indexing, movement, reduce
from minitorch.functions.matmul import matmul, product
from minitorch.functions.operands import (
    cast,
    check_broadcast,
    check_same_device,
    check_same_dtype,
    operands,
    scalar_like,
    to_floating,
    type_with_number,
)
from minitorch.functions.softmax import LogSoftmax, Softmax
from minitorch.tensor_data import Shape, TensorData, normalize_dim, numel

Number: TypeAlias = bool | int | float
Dim: TypeAlias = int | Sequence[int] | None
# Inside the class, `bool`, `int`, `float` and `type` are methods; annotations say:
Operation: TypeAlias = type[Function]
Bool: TypeAlias = bool
Int: TypeAlias = int
Float: TypeAlias = float


class Tensor(Variable):
    """A tensor on one device. Make one with `minitorch.tensor(...)` and its kin.

    Attributes:
        raw: storage, shape, strides and offset (`TensorData`), without any gradient.
        requires_grad: whether operations on this are recorded.
        grad: the gradient that backward passes have added up, None before the first.
        node: the recorded operation that made this, None for a leaf.
    """

    __slots__ = ("_base", "_view_version", "raw")
    __array_priority__ = 1000  # NumPy leaves `array + tensor` to us

    raw: TensorData

    def __init__(self, raw: TensorData, requires_grad: Bool = False) -> None:
        if not isinstance(raw, TensorData):
            raise TypeError(
                f"Tensor: got a {type(raw).__name__}; use minitorch.tensor(data) to "
                f"make a tensor from numbers, lists or arrays"
            )
        self.raw = raw
        self.requires_grad = requires_grad
        self.grad: Tensor | None = None
        self.node = None
        self.output_index = 0
        self._hooks = None
        self._post_hooks = None
        self._base: Tensor | None = None  # the tensor that this is a view of
        self._view_version = -1

    @staticmethod
    def wrap(raw: TensorData, node: Node | None = None, index: Int = 0) -> Tensor:
        """A tensor around what a backend returned: output `index` of `node`."""
        out = Tensor(raw)
        if node is not None:
            out.node, out.output_index, out.requires_grad = node, index, True
        return out

    # ------------------------------------------------------------ what it is

    @property
    def shape(self) -> Size:
        return Size(self.raw.shape)

    def size(self, dim: Int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        if dim is None:
            return self.shape
        return self.raw.shape[existing_dim("size", self, dim)]

    def dim(self) -> Int:
        """How many dimensions there are."""
        return len(self.raw.shape)

    @property
    def ndim(self) -> Int:
        return len(self.raw.shape)

    def numel(self) -> Int:
        """How many elements there are."""
        return self.raw.size

    def element_size(self) -> Int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def stride(self) -> tuple[Int, ...]:
        """Storage elements from one index to the next, for each dimension."""
        return self.raw.strides

    def storage_offset(self) -> Int:
        """The storage position of the first element."""
        return self.raw.offset

    def is_contiguous(self) -> Bool:
        """Whether the elements lie row by row without gaps."""
        return self.raw.is_contiguous()

    def is_floating_point(self) -> Bool:
        """Whether the dtype is float32 or float64."""
        return self.dtype.is_floating_point

    @property
    def dtype(self) -> DType:
        return self.raw.storage.dtype

    @property
    def device(self) -> str:
        """The name of the backend that holds the numbers."""
        return self.raw.storage.device

    @property
    def backend(self) -> Any:
        """The functions that compute on this tensor (`minitorch.backend.Backend`)."""
        device = self.raw.storage.device
        return loaded_backends.get(device) or get_backend(device)

    @property
    def grad_fn(self) -> Node | None:
        """The recorded operation that made this."""
        return self.node

    @property
    def _version(self) -> Int:
        return self.raw.storage.version

    def __len__(self) -> Int:
        if not self.raw.shape:
            raise TypeError("len(): a tensor without dimensions has no length")
        return self.raw.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.raw.shape:
            raise TypeError("iter: a tensor without dimensions cannot be iterated over")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> Bool:
        if self.numel() != 1:
            raise ValueError(
                f"bool(): a tensor of shape {self.raw.shape} is neither true nor "
                f"false; use .any() or .all()"
            )
        return bool(self.item())

    def __float__(self) -> Float:
        return float(self.item())

    def __int__(self) -> Int:
        return int(self.item())

    def __index__(self) -> Int:
        if self.dtype.is_floating_point:
            raise TypeError("index: a floating-point tensor cannot be one; use .long()")
        return int(self.item())

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        from minitorch.printing import tensor_repr

        return tensor_repr(self)

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.dim() == 0 else repr(self), spec)

    # ------------------------------------------------------- copies and pickles

    def __deepcopy__(self, memo: dict[Int, Any]) -> Tensor:
        """A leaf with a copy of the numbers and of the gradient, for copy.deepcopy."""
        self._require_leaf("deepcopy")
        raw = self.backend.copy(self.raw, self.dtype)
        grad = None if self.grad is None else self.grad.__deepcopy__(memo)
        return _rebuild(type(self), raw, self.requires_grad, grad)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: the numbers, the device and requires_grad."""
        self._require_leaf("pickle")
        array = np.array(self._host(), order="C")
        return _unpickle, (type(self), array, self.device, self.requires_grad)

    def _require_leaf(self, name: str) -> None:
        if not self.is_leaf:
            raise RuntimeError(
                f"{name}: the tensor is the result of an operation, and its graph is "
                f"not copied; detach() it first"
            )

    # ---------------------------------------------------- to and from Python

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.numel() != 1:
            raise ValueError(
                f"item(): the tensor has {self.numel()} elements (shape "
                f"{self.raw.shape}); it must have exactly one; use .tolist()"
            )
        return self._host().reshape(()).item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self._host().tolist()

    def _host(self) -> np.ndarray:
        return self.backend.to_numpy(self.raw)

    def numpy(self) -> np.ndarray:
        """A NumPy array of the elements; on the CPU it shares the memory."""
        if self.requires_grad:
            raise RuntimeError(
                "numpy(): the tensor requires grad, and NumPy would not record what is "
                "done to it; use .detach().numpy()"
            )
        return self._host()

    def __array__(self, dtype: Any = None, copy: Bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        return self.backend.to_dlpack(self._without_grad("__dlpack__"), **options)

    def __dlpack_device__(self) -> tuple[Int, Int]:
        return self.backend.dlpack_device(self.raw)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For Numba, CuPy and torch: where the memory on the GPU is."""
        interface = self.backend.cuda_array_interface(self.raw)
        self._without_grad("sharing")
        return interface

    def _without_grad(self, name: str) -> TensorData:
        if self.requires_grad:
            raise RuntimeError(
                f"{name}: the tensor requires grad, and others would not record what "
                f"is done to it; use .detach() first"
            )
        return self.raw

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """On another device, or in another dtype, or both: `to("cuda", float32)`.

        With `non_blocking=True` nobody waits for a copy between the CPU's pinned memory
        (`pin_memory`) and "cuda", as in PyTorch: the numbers that are copied must not
        be changed before the work on the stream is done, and a copy on the CPU must not
        be read before (`minitorch.cuda.synchronize`).
        """
        device, dtype, non_blocking = parse_to(self, *args, **kwargs)
        out = cast(self, dtype) if dtype is not None else self
        if device is not None and device != out.device:
            out = movement.ToDevice.apply(out, device, non_blocking)
        return out

    def pin_memory(self) -> Tensor:
        """In memory from which `to("cuda", non_blocking=True)` copies on its own.

        Itself, if it already is there.
        """
        check_pinnable(self)
        return self if self.is_pinned() else movement.Pin.apply(self)

    def is_pinned(self) -> Bool:
        """Whether it is in pinned memory."""
        return movement.is_pinned(self)

    def cpu(self) -> Tensor:
        """On the default device "cpu"."""
        return self.to("cpu")

    def cuda(self, *, non_blocking: Bool = False) -> Tensor:
        """On the device "cuda"."""
        return self.to("cuda", non_blocking=non_blocking)

    def type(self, dtype: DType) -> Tensor:
        """In another dtype."""
        return cast(self, dtypes.check(dtype))

    def float(self) -> Tensor:
        """As float32."""
        return cast(self, dtypes.float32)

    def double(self) -> Tensor:
        """As float64."""
        return cast(self, dtypes.float64)

    def long(self) -> Tensor:
        """As int64."""
        return cast(self, dtypes.int64)

    def int(self) -> Tensor:
        """As int32."""
        return cast(self, dtypes.int32)

    def bool(self) -> Tensor:
        """As bool: whether each element is not 0."""
        return cast(self, dtypes.bool_)

    # ------------------------------------------------------- new ones like this

    def new_tensor(self, data: Any, dtype: DType | None = None) -> Tensor:
        """A tensor of `data` on this device."""
        from minitorch.creation import tensor

        return tensor(data, dtype=dtype, device=self.device)

    def new_full(self, shape: Any, value: Number) -> Tensor:
        """A tensor of `shape` full of `value`, of this dtype and on this device."""
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        value = dtypes.check_number(value, self.dtype)
        return Tensor(self.backend.full(shape, value, self.dtype))

    def new_zeros(self, *shape: Any) -> Tensor:
        """Zeros of `shape`, of this dtype and on this device."""
        return self.new_full(int_sequence("new_zeros", shape), 0)

    def new_ones(self, *shape: Any) -> Tensor:
        """Ones of `shape`, of this dtype and on this device."""
        return self.new_full(int_sequence("new_ones", shape), 1)

    def arange_like(self) -> Tensor:
        """0, 1, ... numel - 1 as int64, on this device."""
        return self.new_tensor(np.arange(self.numel(), dtype=np.int64))

    # ----------------------------------------------------------------- autograd

    def requires_grad_(self, mode: Bool = True) -> Tensor:
        """Turn recording on or off for this leaf."""
        if not self.is_leaf:
            raise RuntimeError(
                "requires_grad_: only a leaf can be changed; use detach() to cut a "
                "tensor out of the graph"
            )
        if mode and not self.dtype.is_floating_point:
            raise RuntimeError(
                f"requires_grad_: the dtype is {self.dtype.name}; only float32 and "
                f"float64 tensors have gradients"
            )
        self.requires_grad = bool(mode)
        return self

    def detach(self) -> Tensor:
        """The same memory, outside of the graph."""
        return Tensor(self.raw)

    @property
    def data(self) -> Tensor:
        """The same memory, outside of the graph; assign to replace it."""
        return Tensor(self.raw)

    @data.setter
    def data(self, value: Tensor) -> None:
        if value.shape != self.shape or value.dtype is not self.dtype:
            raise ValueError(
                f"data: got shape {tuple(value.shape)} and {value.dtype.name}; "
                f"expected {tuple(self.shape)} and {self.dtype.name}"
            )
        self.raw = value.raw

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: Bool | None = None,
        create_graph: Bool = False,
    ) -> None:
        """Add the gradient of this to the `.grad` of all leaves it was made from.

        Args:
            gradient: the gradient of this tensor itself, of its shape; it may be left
                out for a tensor of one element, where it is 1.
            retain_graph: keep what the backward pass needs, to use the graph again.
            create_graph: record the backward pass, for gradients of gradients.
        """
        if self.edge() is None:
            raise RuntimeError(
                "backward(): the tensor was not made from any tensor with "
                "requires_grad=True, so there is nothing to differentiate"
            )
        start = start_gradient("backward()", self, gradient)
        keep = create_graph if retain_graph is None else bool(retain_graph)
        backpropagate([self], [start], keep, bool(create_graph))

    def edge(self) -> Edge | None:
        """Where a gradient with respect to this has to go."""
        if self._base is not None:
            self.renew_view()
        return super().edge()

    def accumulate_grad(self, grad: Tensor, create_graph: Bool) -> None:
        """Add `grad` to `.grad`, then run the post-accumulate hooks."""
        if self.grad is None:
            shared = grad.raw.storage.shared  # see `mark_shared`
            if create_graph or shared or not grad.is_contiguous():
                grad = grad.clone()
            self.grad = grad if create_graph else grad.detach()
        elif create_graph:
            self.grad = self.grad + grad
        else:
            self.grad.add_(grad)
        for hook in tuple(self._post_hooks or ()):
            hook(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Call `hook(grad)` when this tensor's gradient is complete.

        A hook may return another gradient to go on with. `remove()` of the returned
        handle takes the hook away.
        """
        if self.edge() is None:
            raise RuntimeError("register_hook: the tensor does not require grad")
        if self.node is None:
            self._hooks = hooks = self._hooks or []
        else:
            self.node.hooks = table = self.node.hooks or {}
            hooks = table.setdefault(self.output_index, [])
        return Handle(hooks, hook)

    def register_post_accumulate_grad_hook(
        self, hook: Callable[[Tensor], None]
    ) -> Handle:
        """Call `hook(tensor)` when `.grad` of this leaf has been updated."""
        if not (self.requires_grad and self.is_leaf):
            raise RuntimeError(
                "register_post_accumulate_grad_hook: only leaves that require grad"
            )
        self._post_hooks = self._post_hooks or []
        return Handle(self._post_hooks, hook)

    def retain_grad(self) -> None:
        """Keep `.grad` of this tensor, though it is no leaf."""
        if self.is_leaf:
            return
        hooks = (self.node.hooks or {}).get(self.output_index) if self.node else None
        if not any(type(hook) is KeepGrad for hook in hooks or ()):
            self.register_hook(KeepGrad(self))

    # --------------------------------------------------------- changes in place

    def assign_(
        self,
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
        involved = [x for x in (self, *others) if isinstance(x, Tensor)]
        wanted = grad_mode.enabled and any(x.edge() is not None for x in involved)
        storage = self.raw.storage
        overlaps = any(
            s == 0 and n > 1 for n, s in zip(self.raw.shape, self.raw.strides)
        )
        if overlaps and self.numel():
            raise RuntimeError(
                f"in-place change of an expanded tensor of shape {self.raw.shape} and "
                f"strides {self.raw.strides}: several elements are one place in "
                f"memory; clone() it first"
            )
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
        old = Tensor.wrap(self.backend.copy(self.raw, self.dtype))
        old.node, old.output_index = self.node, self.output_index
        old.requires_grad = self.requires_grad
        new = recorded(old)
        self.backend.copy_into(self.raw, new.raw)
        storage.version += 1
        storage.rebased = storage.version
        self._become(new)
        return self

    def _become(self, other: Tensor) -> None:
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

    def view_of(self, source: Tensor) -> Tensor:
        """Remember that this shares the memory of `source`."""
        self._base = source if source._base is None else source._base
        self._view_version = self.raw.storage.version
        return self

    def renew_view(self) -> None:
        """Take this view again if a recorded operation has changed its base since."""
        storage, base = self.raw.storage, self._base
        if base is None or not grad_mode.enabled:
            return
        if self._view_version < storage.rebased:
            where = self._positions_in(base)
            again = indexing.IndexSelect.apply(base.reshape(-1), 0, where)
            self._become(again.reshape(self.raw.shape))
            self._view_version = storage.version

    def _assign_through_base(
        self, base: Tensor, recorded: Callable[[Tensor], Tensor], *others: Any
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

    def _positions_in(self, base: Tensor) -> Tensor:
        """Where this view's elements lie in the flattened base, int64 [numel]."""
        if not base.raw.is_contiguous():
            raise RuntimeError(
                f"in-place change, recorded, of a view of a tensor with shape "
                f"{base.raw.shape} and strides {base.raw.strides}: only views of "
                f"contiguous tensors can be changed so; take base.contiguous() first"
            )
        raw, storage = self.raw, base.arange_like().raw.storage
        offset = raw.offset - base.raw.offset
        return Tensor(TensorData(storage, raw.shape, raw.strides, offset)).reshape(-1)

    def _apart(self, b: TensorData) -> TensorData:
        """`b`, or a copy where it is another window of the memory that is written."""
        a = self.raw
        if b.storage is not a.storage:
            return b
        same = (b.shape, b.strides, b.offset) == (a.shape, a.strides, a.offset)
        return b if same else self.backend.copy(b, b.dtype)

    def _zip_(self, name: str, fn: Callable, op: Callable, other: Any) -> Tensor:
        a, b = operands(name, self, other)
        self._check_fits(name, a)
        b = cast(b, self.dtype)
        if check_broadcast(name, a.raw.shape, b.raw.shape) != a.raw.shape:
            raise ValueError(
                f"{name}: the result of shapes {a.raw.shape} and {b.raw.shape} does "
                f"not fit into the first in place"
            )
        return self.assign_(
            lambda old: op(old, b),
            lambda: self.backend.zip(fn, self.raw, self._apart(b.raw), None, self.raw),
            b,
        )

    def _replace(self, name: str, op: Callable, *others: Any) -> Tensor:
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
            self.backend.copy_into(self.raw, new(self.detach()).raw)

        return self.assign_(new, quietly, *others)

    def _check_fits(self, name: str, new: Tensor) -> None:
        if new.dtype.category > self.dtype.category:
            raise TypeError(
                f"{name}: the result is {new.dtype.name}, which does not fit into a "
                f"{self.dtype.name} tensor in place"
            )

    def add_(self, other: Any, *, alpha: Number = 1) -> Tensor:
        """self += alpha * other"""
        other = times_alpha("add_", self, other, alpha)
        return self._zip_("add_", operators.add, operator.add, other)

    def sub_(self, other: Any, *, alpha: Number = 1) -> Tensor:
        """self -= alpha * other"""
        _, other = without_bools("sub_", self, times_alpha("sub_", self, other, alpha))
        return self._zip_("sub_", operators.sub, operator.sub, other)

    def mul_(self, other: Any) -> Tensor:
        """self *= other"""
        return self._zip_("mul_", operators.mul, operator.mul, other)

    def div_(self, other: Any) -> Tensor:
        """self /= other"""
        if not self.dtype.is_floating_point:
            raise TypeError(
                f"div_: the result is float32, which does not fit into a "
                f"{self.dtype.name} tensor in place"
            )
        return self._zip_("div_", operators.div, operator.truediv, other)

    def copy_(self, other: Any, non_blocking: Bool = False) -> Tensor:
        """The numbers of `other`, converted and broadcast to this tensor.

        With `non_blocking` nobody waits for a copy to "cuda" from pinned memory.
        """
        if isinstance(other, Tensor) and other.dim() > self.dim():
            raise ValueError(
                f"copy_: a tensor of shape {other.raw.shape} does not fit into one of "
                f"shape {self.raw.shape}; drop dimensions first, with reshape()"
            )
        if non_blocking and isinstance(other, Tensor):
            other = other.to(self.device, non_blocking=True)
        indexing.setitem(self, (), other)
        return self

    def fill_(self, value: Number) -> Tensor:
        """`value`, a number or a tensor without dims, everywhere."""
        if isinstance(value, Tensor) and value.dim():
            raise ValueError(
                f"fill_: the value is a tensor of shape {value.raw.shape}; expected a "
                f"number or a tensor without dimensions; use copy_()"
            )
        indexing.setitem(self, (), value)
        return self

    def zero_(self) -> Tensor:
        """0 everywhere."""
        return self.fill_(0)

    def clamp_(self, min: Number | None = None, max: Number | None = None) -> Tensor:
        """Values below `min` and above `max` set to them, in place."""
        return self._replace("clamp_", lambda old: old.clamp(min, max), min, max)

    def masked_fill_(self, mask: Tensor, value: Any) -> Tensor:
        """`value` where the mask holds, in place."""
        return self.copy_(self.masked_fill(mask, value))

    def uniform_(self, low: Float = 0.0, high: Float = 1.0) -> Tensor:
        """Uniform random numbers in [low, high), in place."""
        from minitorch.creation import rand

        new = rand(*self.shape, dtype=self.dtype, device=self.device)
        return self.copy_(new * (high - low) + low)

    def normal_(self, mean: Float = 0.0, std: Float = 1.0) -> Tensor:
        """Normal random numbers, in place."""
        from minitorch.creation import randn

        new = randn(*self.shape, dtype=self.dtype, device=self.device)
        return self.copy_(new * std + mean)

    def __iadd__(self, other: Any) -> Tensor:
        return self.add_(other)

    def __isub__(self, other: Any) -> Tensor:
        return self.sub_(other)

    def __imul__(self, other: Any) -> Tensor:
        return self.mul_(other)

    def __itruediv__(self, other: Any) -> Tensor:
        return self.div_(other)

    def __ifloordiv__(self, other: Any) -> Tensor:
        return self._replace("//=", lambda old: old // other, other)

    def __imod__(self, other: Any) -> Tensor:
        return self._replace("%=", lambda old: old % other, other)

    def __ipow__(self, other: Any) -> Tensor:
        return self._replace("**=", lambda old: old**other, other)

    def __iand__(self, other: Any) -> Tensor:
        return self._replace("&=", lambda old: old & other, other)

    def __ior__(self, other: Any) -> Tensor:
        return self._replace("|=", lambda old: old | other, other)

    def __ixor__(self, other: Any) -> Tensor:
        return self._replace("^=", lambda old: old ^ other, other)

    # --------------------------------------------------------------- arithmetic

    def __add__(self, other: Any) -> Tensor:
        return ew.Add.apply(*operands("add", self, other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Tensor:
        return ew.Sub.apply(*without_bools("sub", self, other))

    def __rsub__(self, other: Any) -> Tensor:
        return ew.Sub.apply(*without_bools("sub", other, self))

    def __mul__(self, other: Any) -> Tensor:
        return ew.Mul.apply(*operands("mul", self, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Tensor:
        a, b = operands("div", self, other)
        return ew.Div.apply(to_floating(a), to_floating(b))

    def __rtruediv__(self, other: Any) -> Tensor:
        a, b = operands("div", other, self)
        return ew.Div.apply(to_floating(a), to_floating(b))

    def __floordiv__(self, other: Any) -> Tensor:
        return ew.FloorDivide.apply(*dividends("floor_divide", self, other))

    def __rfloordiv__(self, other: Any) -> Tensor:
        return ew.FloorDivide.apply(*dividends("floor_divide", other, self))

    def __mod__(self, other: Any) -> Tensor:
        return ew.Remainder.apply(*dividends("remainder", self, other))

    def __rmod__(self, other: Any) -> Tensor:
        return ew.Remainder.apply(*dividends("remainder", other, self))

    def __pow__(self, other: Any) -> Tensor:
        if isinstance(other, Tensor):
            return _pow(self, other)
        a = cast(self, type_with_number("pow", self, other))
        if other == 2:  # also the fastest
            return a * a
        if other < 0 and not a.dtype.is_floating_point:
            raise ValueError("pow: integers to negative powers; use .float() first")
        return _pow(a, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _pow(other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return matmul(self, other)

    def __neg__(self) -> Tensor:
        return ew.Neg.apply(not_bool("neg", self))

    def __abs__(self) -> Tensor:
        return ew.Abs.apply(not_bool("abs", self))

    def add(self, other: Any, *, alpha: Number = 1) -> Tensor:
        """self + alpha * other"""
        return self + times_alpha("add", self, other, alpha)

    def sub(self, other: Any, *, alpha: Number = 1) -> Tensor:
        """self - alpha * other"""
        return self - times_alpha("sub", self, other, alpha)

    def mul(self, other: Any) -> Tensor:
        """self * other"""
        return self * other

    def div(self, other: Any) -> Tensor:
        """self / other"""
        return self / other

    def pow(self, exponent: Any) -> Tensor:
        """self ** exponent"""
        return self**exponent

    def matmul(self, other: Tensor) -> Tensor:
        """self @ other"""
        return matmul(self, other)

    def mm(self, mat2: Tensor) -> Tensor:
        """The product of two matrices: [M, K] @ [K, N] -> [M, N]"""
        return product("mm", self, 2, mat2, 2)

    def bmm(self, mat2: Tensor) -> Tensor:
        """The products of two stacks: [B, M, K] @ [B, K, N] -> [B, M, N]"""
        return product("bmm", self, 3, mat2, 3)

    def mv(self, vec: Tensor) -> Tensor:
        """The product of a matrix and a vector: [M, K] @ [K] -> [M]"""
        return product("mv", self, 2, vec, 1)

    def dot(self, other: Tensor) -> Tensor:
        """The inner product of two vectors: [K] @ [K] -> ()"""
        return product("dot", self, 1, other, 1)

    def outer(self, other: Tensor) -> Tensor:
        """The products of all pairs: a [N], b [M] -> [N, M]."""
        for x in (self, other):
            if x.dim() != 1:
                raise ValueError(f"outer: expected two vectors, got {x.raw.shape}")
        return self.unsqueeze(1) * other.unsqueeze(0)

    def maximum(self, other: Any) -> Tensor:
        """The larger of each pair."""
        return ew.Maximum.apply(*operands("maximum", self, other))

    def minimum(self, other: Any) -> Tensor:
        """The smaller of each pair."""
        return ew.Minimum.apply(*operands("minimum", self, other))

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """Values below `min` raised to it, those above `max` lowered to it.

        The gradient passes where the value was in [min, max].
        """
        if min is None and max is None:
            raise ValueError("clamp: give min, max or both")
        a = self
        if min is not None:
            a, low = operands("clamp", a, min)
            a = ew.Where.apply(ew.compare(operators.lt, a, low), low, a)
        if max is not None:
            a, high = operands("clamp", a, max)
            a = ew.Where.apply(ew.compare(operators.gt, a, high), high, a)
        return a

    clip = clamp

    # -------------------------------------------------------------- comparisons

    def __lt__(self, other: Any) -> Tensor:
        return ew.compare(operators.lt, *operands("lt", self, other))

    def __le__(self, other: Any) -> Tensor:
        return ew.compare(operators.le, *operands("le", self, other))

    def __gt__(self, other: Any) -> Tensor:
        return ew.compare(operators.gt, *operands("gt", self, other))

    def __ge__(self, other: Any) -> Tensor:
        return ew.compare(operators.ge, *operands("ge", self, other))

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, (Tensor, bool, int, float, np.number, np.bool_)):
            return NotImplemented
        return ew.compare(operators.eq, *operands("eq", self, other))

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, (Tensor, bool, int, float, np.number, np.bool_)):
            return NotImplemented
        return ew.compare(operators.ne, *operands("ne", self, other))

    lt, le, gt, ge, eq, ne = __lt__, __le__, __gt__, __ge__, __eq__, __ne__

    def __and__(self, other: Any) -> Tensor:
        return self.logical_and(only_bool("&", other, only_bool("&", self)))

    def __or__(self, other: Any) -> Tensor:
        return self.logical_or(only_bool("|", other, only_bool("|", self)))

    def __xor__(self, other: Any) -> Tensor:
        return self.logical_xor(only_bool("^", other, only_bool("^", self)))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Tensor:
        return only_bool("~", self).logical_not()

    def logical_and(self, other: Any) -> Tensor:
        """Whether both are not 0."""
        return ew.compare(operators.logical_and, *operands("logical_and", self, other))

    def logical_or(self, other: Any) -> Tensor:
        """Whether at least one is not 0."""
        return ew.compare(operators.logical_or, *operands("logical_or", self, other))

    def logical_xor(self, other: Any) -> Tensor:
        """Whether exactly one is not 0."""
        return ew.compare(operators.logical_xor, *operands("logical_xor", self, other))

    def logical_not(self) -> Tensor:
        """Whether each is 0."""
        return ew.test(operators.logical_not, self)

    def isnan(self) -> Tensor:
        """Where elements are NaN."""
        return ew.test(operators.isnan, self)

    def isinf(self) -> Tensor:
        """Where elements are infinite."""
        return ew.test(operators.isinf, self)

    def isfinite(self) -> Tensor:
        """Where elements are neither infinite nor NaN."""
        return ew.test(operators.isfinite, self)

    def equal(self, other: Tensor) -> Any:
        """Whether both have one shape and equal elements: a Python bool."""
        return self.raw.shape == other.raw.shape and bool((self == other).all())

    def isclose(
        self,
        other: Tensor,
        rtol: Float = 1e-5,
        atol: Float = 1e-8,
        equal_nan: Bool = False,
    ) -> Tensor:
        """Where |self - other| <= atol + rtol |other|: a bool tensor."""
        check_same_dtype("isclose", self, other)
        a, b = operands("isclose", self.detach(), other.detach())
        close = a == b
        if a.dtype is not dtypes.bool_:
            close = close | ((a - b).abs() <= atol + rtol * b.abs())
        return close | (a.isnan() & b.isnan()) if equal_nan else close

    def allclose(
        self,
        other: Tensor,
        rtol: Float = 1e-5,
        atol: Float = 1e-8,
        equal_nan: Bool = False,
    ) -> Any:
        """Whether |self - other| <= atol + rtol |other| everywhere: a Python bool."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    # ------------------------------------------------------------- one operand

    def neg(self) -> Tensor:
        """-x"""
        return -self

    def abs(self) -> Tensor:
        """|x|"""
        return abs(self)

    def sign(self) -> Tensor:
        """-1, 0 or 1"""
        return ew.Step.apply(self, operators.sign)

    def floor(self) -> Tensor:
        """The largest whole number that is not above x."""
        return ew.Step.apply(not_bool("floor", self), operators.floor)

    def ceil(self) -> Tensor:
        """The smallest whole number that is not below x."""
        return ew.Step.apply(not_bool("ceil", self), operators.ceil)

    def round(self) -> Tensor:
        """The nearest whole number, halves to the even one."""
        return ew.Step.apply(not_bool("round", self), operators.round)

    def exp(self) -> Tensor:
        """e ** x"""
        return ew.Exp.apply(to_floating(self))

    def expm1(self) -> Tensor:
        """exp(x) - 1, exact for small x."""
        return ew.Expm1.apply(to_floating(self))

    def log(self) -> Tensor:
        """The natural logarithm."""
        return ew.Log.apply(to_floating(self))

    def log1p(self) -> Tensor:
        """log(1 + x), exact for small x."""
        return ew.Log1p.apply(to_floating(self))

    def sqrt(self) -> Tensor:
        """The square root."""
        return ew.Sqrt.apply(to_floating(self))

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)"""
        return ew.Rsqrt.apply(to_floating(self))

    def reciprocal(self) -> Tensor:
        """1 / x"""
        return ew.Reciprocal.apply(to_floating(self))

    def square(self) -> Tensor:
        """x * x"""
        return self**2

    def sin(self) -> Tensor:
        """The sine of x radians."""
        return ew.Sin.apply(to_floating(self))

    def cos(self) -> Tensor:
        """The cosine of x radians."""
        return ew.Cos.apply(to_floating(self))

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""
        return ew.Tanh.apply(to_floating(self))

    def erf(self) -> Tensor:
        """The error function."""
        return ew.Erf.apply(to_floating(self))

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))"""
        return ew.Sigmoid.apply(to_floating(self))

    def relu(self) -> Tensor:
        """x where x > 0, else 0."""
        return ew.Relu.apply(not_bool("relu", self))

    def gelu(self, approximate: str = "none") -> Tensor:
        """x P(X <= x) for a standard normal X; "tanh" for the approximation."""
        if approximate not in ("none", "tanh"):
            raise ValueError(
                f'gelu: approximate is {approximate!r}; it must be "none" or "tanh"'
            )
        op = ew.Gelu if approximate == "none" else ew.GeluTanh
        return op.apply(check_floating("gelu", self))

    def silu(self) -> Tensor:
        """x * sigmoid(x)"""
        return ew.Silu.apply(check_floating("silu", self))

    def elu(self, alpha: Float = 1.0) -> Tensor:
        """x where x > 0, else alpha (exp(x) - 1)."""
        x = check_floating("elu", self)
        return ew.Elu.apply(x, scalar_like(x, alpha, x.dtype))

    def leaky_relu(self, negative_slope: Float = 0.01) -> Tensor:
        """x where x > 0, else negative_slope * x."""
        x = check_floating("leaky_relu", self)
        return ew.LeakyRelu.apply(x, scalar_like(x, negative_slope, x.dtype))

    def softplus(self) -> Tensor:
        """log(1 + exp(x)), without overflow."""
        return ew.Softplus.apply(check_floating("softplus", self))

    # --------------------------------------------------------------- reductions

    def sum(
        self, dim: Dim = None, keepdim: Bool = False, *, dtype: DType | None = None
    ) -> Tensor:
        """The sum over one, several or all (None) dims, of the elements as `dtype`.

        Integers give int64 where no dtype is named.
        """
        a = self if dtype is None else cast(self, dtypes.check(dtype))
        total = a if a.dtype.is_floating_point else cast(a, dtypes.int64)
        out = reduce.Sum.apply(total, reduced_dims(a, dim, "sum"), keepdim)
        return out if dtype is None else cast(out, dtype)

    def mean(self, dim: Dim = None, keepdim: Bool = False) -> Tensor:
        """The mean over one, several or all dims."""
        check_floating("mean", self)
        dims = reduced_dims(self, dim, "mean")
        count = numel(tuple(self.raw.shape[d] for d in dims))
        return reduce.Mean.apply(self, dims, keepdim, count)

    def var(
        self,
        dim: Dim = None,
        *,
        correction: Int = 1,
        keepdim: Bool = False,
        unbiased: Bool | None = None,
    ) -> Tensor:
        """The variance: squared distances from the mean over n - correction."""
        check_floating("var", self)
        correction = correction if unbiased is None else int(bool(unbiased))
        dims = reduced_dims(self, dim, "var")
        count = numel(tuple(self.raw.shape[d] for d in dims))
        centred = self - self.mean(dims, keepdim=True)
        total = reduce.Sum.apply(centred * centred, dims, keepdim)
        return total / float(max(count - correction, 0))

    def std(
        self,
        dim: Dim = None,
        *,
        correction: Int = 1,
        keepdim: Bool = False,
        unbiased: Bool | None = None,
    ) -> Tensor:
        """The square root of the variance."""
        return _root(
            self.var(dim, correction=correction, keepdim=keepdim, unbiased=unbiased)
        )

    def prod(self, dim: Dim = None, keepdim: Bool = False) -> Tensor:
        """The product over one or all dims. Integers give int64."""
        a = self if self.dtype.is_floating_point else cast(self, dtypes.int64)
        if dim is None:
            a = a.reshape(-1)
            out = _drop(reduce.Prod.apply(a, 0), (0,), False)
            return out.reshape((1,) * self.dim()) if keepdim else out
        if not isinstance(dim, int):
            raise TypeError(f"prod: dim is {dim!r}; it must be an int or None")
        dims = reduced_dims(a, dim, "prod")
        return _drop(reduce.Prod.apply(a, *dims), dims, keepdim) if dims else a.clone()

    def amax(self, dim: Dim = None, keepdim: Bool = False) -> Tensor:
        """The maximum over one, several or all dims."""
        return self._extreme("amax", operators.maximum, reduce.lowest, dim, keepdim)

    def amin(self, dim: Dim = None, keepdim: Bool = False) -> Tensor:
        """The minimum over one, several or all dims."""
        return self._extreme("amin", operators.minimum, reduce.highest, dim, keepdim)

    def _extreme(
        self, name: str, fn: Callable, start: Callable, dim: Dim, keepdim: Bool
    ) -> Tensor:
        dims = reduced_dims(self, dim, name)
        not_empty(name, self, dims)
        out = reduce.Extreme.apply(self, fn, dims, start(self.dtype))
        return _drop(out, dims, keepdim)

    def max(self, dim: Any = None, keepdim: Bool = False) -> Any:
        """The maximum; with a dim, the pair (values, indices); or maximum(other)."""
        if isinstance(dim, Tensor):
            return self.maximum(dim)
        if dim is None:
            return self.amax()
        return self._pick("max", self._arg("argmax", dim, True), dim, keepdim)

    def min(self, dim: Any = None, keepdim: Bool = False) -> Any:
        """The minimum; with a dim, the pair (values, indices); or minimum(other)."""
        if isinstance(dim, Tensor):
            return self.minimum(dim)
        if dim is None:
            return self.amin()
        return self._pick("min", self._arg("argmin", dim, True), dim, keepdim)

    def _pick(self, name: str, index: Tensor, dim: Any, keepdim: Bool) -> Any:
        if self.dim() == 0:
            return ValuesIndices(self.clone(), index)
        dims = reduced_dims(self, dim, name)
        values = indexing.Gather.apply(self, dims[0], index)
        return ValuesIndices(_drop(values, dims, keepdim), _drop(index, dims, keepdim))

    def argmax(self, dim: Any = None, keepdim: Bool = False) -> Tensor:
        """Where the (first) maximum is, along a dim or in the flattened tensor."""
        return not_bool("argmax", self)._arg("argmax", dim, keepdim)

    def argmin(self, dim: Any = None, keepdim: Bool = False) -> Tensor:
        """Where the (first) minimum is, along a dim or in the flattened tensor."""
        return not_bool("argmin", self)._arg("argmin", dim, keepdim)

    def _arg(self, name: str, dim: Any, keepdim: Bool) -> Tensor:
        a = self.detach()
        dim = dim if dim is None else normalize_dim(dim, a.dim(), name)
        flat = dim is None or a.dim() == 0
        if dim is not None:
            normalize_dim(dim, a.dim(), name)
        if flat:
            a, dim = a.reshape(-1), 0
        not_empty(name, a, (dim,))
        fn = a.backend.argmax if name == "argmax" else a.backend.argmin
        out = a.wrap(fn(a.raw, dim))
        if flat:
            return out.reshape((1,) * self.dim() if keepdim else ())
        return _drop(out, (dim,), keepdim)

    def any(self, dim: Dim = None, keepdim: Bool = False) -> Tensor:
        """Whether one element, at least, is not 0."""
        return self._fold("any", operators.logical_or, False, dim, keepdim)

    def all(self, dim: Dim = None, keepdim: Bool = False) -> Tensor:
        """Whether no element is 0."""
        return self._fold("all", operators.logical_and, True, dim, keepdim)

    def _fold(
        self, name: str, fn: Callable, start: Bool, dim: Dim, keepdim: Bool
    ) -> Tensor:
        # No dims, (), are no dims here, as in PyTorch; elsewhere they are all.
        dims = () if dim in ((), []) else reduced_dims(self, dim, name)
        return _drop(reduce.fold(fn, self.bool(), dims, start), dims, keepdim)

    def logsumexp(self, dim: Dim, keepdim: Bool = False) -> Tensor:
        """log(sum(exp(x))), without overflow."""
        a = to_floating(self)
        dims = reduced_dims(a, dim, "logsumexp")
        top = reduce.Extreme.apply(a.detach(), operators.maximum, dims, -operators.inf)
        top = ew.Where.apply(top.isfinite(), top, top.new_zeros(()))
        out = (a - top).exp().sum(dims, keepdim=True).log() + top
        return _drop(out, dims, keepdim)

    def norm(self, p: Any = 2, dim: Dim = None, keepdim: Bool = False) -> Tensor:
        """The p-norm (1, 2 or inf) over one, several or all dims."""
        check_floating("norm", self)
        if p == 2:
            return _root((self * self).sum(dim, keepdim))
        if p == 1:
            return self.abs().sum(dim, keepdim)
        if p == operators.inf:
            return self.abs().amax(dim, keepdim)
        raise ValueError(f"norm: p is {p!r}; it must be 1, 2 or inf")

    def cumsum(self, dim: Any) -> Tensor:
        """Running sums along `dim`. Integers give int64."""
        a = self if self.dtype.is_floating_point else cast(self, dtypes.int64)
        dim = normalize_dim(dim, a.dim(), "cumsum")
        return reduce.Cumsum.apply(a, dim) if a.dim() else a.clone()

    # ----------------------------------------------------------------- movement

    def view(self, *shape: Any) -> Tensor:
        """The same memory in another shape; an error where that needs a copy."""
        return movement.View.apply(self, shape_for(self, "view", shape))

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape: a view if possible, else a copy."""
        new = shape_for(self, "reshape", shape)
        if self.raw.view(new) is None:
            return movement.View.apply(movement.Clone.apply(self), new)
        return movement.View.apply(self, new)

    def view_as(self, other: Tensor) -> Tensor:
        """A view in other's shape."""
        return self.view(other.shape)

    def reshape_as(self, other: Tensor) -> Tensor:
        """Reshaped to other's shape."""
        return self.reshape(other.shape)

    def permute(self, *dims: Any) -> Tensor:
        """Dimension i of the view is dimension dims[i] of this."""
        order = int_sequence("permute", dims)
        order = tuple(normalize_dim(d, self.dim(), "permute") for d in order)
        if sorted(order) != list(range(self.dim())):
            raise ValueError(
                f"permute: dims are {order}; each of the {self.dim()} dimensions must "
                f"be named once"
            )
        return movement.Permute.apply(self, order)

    def transpose(self, dim0: Int, dim1: Int) -> Tensor:
        """Two dimensions exchanged."""
        order = list(range(self.dim()))
        i = normalize_dim(dim0, self.dim(), "transpose")
        j = normalize_dim(dim1, self.dim(), "transpose")
        if order:
            order[i], order[j] = order[j], order[i]
        return movement.Permute.apply(self, tuple(order))

    def t(self) -> Tensor:
        """The transpose of a matrix."""
        if self.dim() > 2:
            raise ValueError(f"t: expected at most 2 dimensions, got {self.raw.shape}")
        return self.permute(*reversed(range(self.dim())))

    @property
    def T(self) -> Tensor:
        """The dimensions in reverse order."""
        return self.permute(*reversed(range(self.dim())))

    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged."""
        if self.dim() < 2:
            raise ValueError(f"mT: expected 2 dimensions or more, got {self.raw.shape}")
        return self.transpose(-2, -1)

    def movedim(self, source: Int, destination: Int) -> Tensor:
        """One dimension moved to another place."""
        start = normalize_dim(source, self.dim(), "movedim")
        end = normalize_dim(destination, self.dim(), "movedim")
        order = list(range(self.dim() or 1))
        order.insert(end, order.pop(start))
        return self.permute(order[: self.dim()])

    def expand(self, *shape: Any) -> Tensor:
        """Dims of size 1 repeated without a copy; -1 keeps a size."""
        new = expanded_shape(self, int_sequence("expand", shape))
        return movement.Expand.apply(self, new)

    def expand_as(self, other: Tensor) -> Tensor:
        """Expanded to other's shape."""
        return self.expand(other.shape)

    def broadcast_to(self, shape: Shape) -> Tensor:
        """Expanded to `shape`."""
        return self.expand(shape)

    def squeeze(self, dim: Dim = None) -> Tensor:
        """Without the dims of size 1: all of them, or those named."""
        dims = () if dim in ((), []) else reduced_dims(self, dim, "squeeze")
        keep = tuple(n for i, n in enumerate(self.raw.shape) if n != 1 or i not in dims)
        return movement.View.apply(self, keep)

    def unsqueeze(self, dim: Any) -> Tensor:
        """With a new dim of size 1 at `dim`."""
        dim = normalize_dim(dim, self.dim() + 1, "unsqueeze")
        shape = (*self.raw.shape[:dim], 1, *self.raw.shape[dim:])
        return movement.View.apply(self, shape)

    def flatten(self, start_dim: Int = 0, end_dim: Int = -1) -> Tensor:
        """Dims start_dim to end_dim as one."""
        start = normalize_dim(start_dim, self.dim(), "flatten")
        end = normalize_dim(end_dim, self.dim(), "flatten")
        if start > end:
            raise ValueError(f"flatten: start_dim {start} comes after end_dim {end}")
        if start == end and self.dim():
            return self
        shape = self.raw.shape
        one = numel(shape[start : end + 1])
        return self.reshape((*shape[:start], one, *shape[end + 1 :]))

    def unflatten(self, dim: Any, sizes: Sequence[Int]) -> Tensor:
        """One dim as several of the given sizes, of which one may be -1."""
        dim = existing_dim("unflatten", self, dim)
        shape = self.raw.shape
        parts = completed(
            "unflatten", (shape[dim],), int_sequence("unflatten", (sizes,))
        )
        return self.reshape((*shape[:dim], *parts, *shape[dim + 1 :]))

    def ravel(self) -> Tensor:
        """All elements in one dim: a view if possible, else a copy."""
        return self.reshape(-1)

    def contiguous(self) -> Tensor:
        """This tensor if it lies row by row without gaps, else a copy that does."""
        return self if self.raw.is_contiguous() else movement.Clone.apply(self)

    def clone(self) -> Tensor:
        """A contiguous copy, connected to this in the graph."""
        return movement.Clone.apply(self)

    def flip(self, *dims: Any) -> Tensor:
        """The order of the elements along `dims` reversed (a copy)."""
        named = int_sequence("flip", dims)
        order = reduced_dims(self, named, "flip") if named else ()
        return movement.Flip.apply(self, order)

    def narrow(self, dim: Any, start: Any, length: Any) -> Tensor:
        """`length` indices of `dim` from `start`."""
        dim = existing_dim("narrow", self, dim)
        size = self.raw.shape[dim]
        start = start + size if start < 0 else start
        if not (0 <= start and 0 <= length and start + length <= size):
            raise ValueError(
                f"narrow: start {start} and length {length} leave dimension {dim} of "
                f"size {size}"
            )
        return movement.Slice.apply(self, ((dim, start, length, 1),))

    def select(self, dim: Any, index: Any) -> Tensor:
        """The slice at `index` of `dim`, without that dim."""
        dim = existing_dim("select", self, dim)
        return self[(slice(None),) * dim + (index,)]

    def split(self, split_size: Any, dim: Any = 0) -> tuple[Tensor, ...]:
        """Views of `split_size` indices each (the last may be smaller), or of sizes."""
        dim = existing_dim("split", self, dim)
        total, size = self.raw.shape[dim], split_size
        if isinstance(size, int):
            if size <= 0:
                raise ValueError(f"split: the size is {size}; it must be above 0")
            sizes = [min(size, total - i) for i in range(0, max(total, 1), size)]
        else:
            sizes = list(size)
        if sum(sizes) != total:
            raise ValueError(
                f"split: sizes {sizes} add up to {sum(sizes)}, but dimension {dim} has "
                f"size {total}"
            )
        starts = np.cumsum([0, *sizes[:-1]]).tolist()
        return tuple(self.narrow(dim, i, n) for i, n in zip(starts, sizes))

    def chunk(self, chunks: Int, dim: Any = 0) -> tuple[Tensor, ...]:
        """At most `chunks` views of (nearly) equal size."""
        if chunks <= 0:
            raise ValueError(f"chunk: chunks is {chunks}; it must be above 0")
        size = self.size(dim)
        return self.split(-(-size // chunks) if size else [0] * chunks, dim)

    def unbind(self, dim: Any = 0) -> tuple[Tensor, ...]:
        """The slices of `dim`, one tensor each."""
        return tuple(self.select(dim, i) for i in range(self.size(dim)))

    def repeat(self, *times: Any) -> Tensor:
        """The tensor repeated `times` along each dim (a copy)."""
        counts = int_sequence("repeat", times)
        if len(counts) < self.dim() or any(n < 0 for n in counts):
            raise ValueError(
                f"repeat: {len(counts)} counts {counts} for {self.dim()} dimension(s); "
                f"give one for each, 0 or more"
            )
        shape = (1,) * (len(counts) - self.dim()) + self.raw.shape
        wide = self.reshape([n for size in shape for n in (1, size)])
        wide = wide.expand([n for pair in zip(counts, shape) for n in pair]).clone()
        return wide.reshape([n * size for n, size in zip(counts, shape)])

    @staticmethod
    def cat(tensors: Sequence[Tensor], dim: Any = 0) -> Tensor:
        """Tensors one after the other along `dim`."""
        tensors = checked_list("cat", tensors)
        dim = normalize_dim(dim, tensors[0].dim(), "cat")
        check_cat(tensors, dim)
        return movement.Cat.apply(dim, *tensors)

    @staticmethod
    def stack(tensors: Sequence[Tensor], dim: Any = 0) -> Tensor:
        """Tensors of one shape along a new dim."""
        tensors = checked_list("stack", tensors)
        for other in tensors[1:]:
            if other.shape != tensors[0].shape:
                raise ValueError(
                    f"stack: one tensor is {tuple(tensors[0].shape)} and another "
                    f"{tuple(other.shape)}; all must have one shape"
                )
        return Tensor.cat(
            [t.unsqueeze(dim) for t in tensors], stack_dim(tensors[0], dim)
        )

    def pad(self, pad: Sequence[Any], value: Any = 0) -> Tensor:
        """`pad` is (before, after) of the last dim, then of the one before, and so on.

        Negative numbers cut elements off.
        """
        return _pad(self, tuple(pad), value)

    def tril(self, diagonal: Int = 0) -> Tensor:
        """Elements above the diagonal set to 0."""
        return self._triangle("tril", lambda row, col: col - row <= diagonal)

    def triu(self, diagonal: Int = 0) -> Tensor:
        """Elements below the diagonal set to 0."""
        return self._triangle("triu", lambda row, col: col - row >= diagonal)

    def _triangle(self, name: str, keep: Callable) -> Tensor:
        if self.dim() < 2:
            raise ValueError(f"{name}: expected 2 dims or more, got {self.raw.shape}")
        rows, cols = self.raw.shape[-2:]
        mask = keep(np.arange(rows)[:, None], np.arange(cols)[None, :])
        return ew.Where.apply(self.new_tensor(mask), self, self.new_zeros(()))

    # ----------------------------------------------------------------- indexing

    def __getitem__(self, index: Any) -> Tensor:
        return indexing.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        indexing.setitem(self, index, value)

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """This where the bool tensor `condition` holds, else other."""
        return choose(condition, self, other)

    def masked_fill(self, mask: Tensor, value: Any) -> Tensor:
        """`value`, a number or a tensor without dims, where the mask holds, else this.

        The dtype stays; what does not fit into it is an error.
        """
        return choose(only_bool("masked_fill", mask), filler(self, value), self)

    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where the mask, broadcast with this, holds, in one dim."""
        mask, shape = only_bool("masked_select", mask), self.raw.shape
        both = check_broadcast("masked_select", shape, mask.raw.shape)
        return self.expand(both).reshape(-1)[mask.expand(both).reshape(-1)]

    def to_sparse_csr(self) -> Any:
        """The elements of a matrix that are not 0, as a `minitorch.SparseCSR`."""
        from minitorch.sparse import to_sparse_csr

        return to_sparse_csr(self)

    def nonzero(self) -> Tensor:
        """The indices of all elements that are not 0, int64 [n, dims]."""
        return self.new_tensor(np.argwhere(self._host() != 0))

    def gather(self, dim: Any, index: Tensor) -> Tensor:
        """out[i, j] = self[index[i, j], j] for dim 0, and so on."""
        dim = check_gather("gather", self, dim, index)
        return indexing.Gather.apply(self, dim, index)

    def scatter_add(self, dim: Any, index: Tensor, src: Tensor) -> Tensor:
        """A copy with out[index[i, j], j] += src[i, j] for dim 0, and so on."""
        dim = check_gather("scatter_add", self, dim, index)
        if any(n > m for n, m in zip(index.raw.shape, src.raw.shape)):
            raise ValueError(
                f"scatter_add: index is {index.raw.shape} and src {src.raw.shape}; no "
                f"size of index may be above src's"
            )
        for d, n in enumerate(index.raw.shape):
            src = src.narrow(d, 0, n) if src.raw.shape[d] != n else src
        return indexing.ScatterAdd.apply(self, dim, index, src)

    def index_select(self, dim: Any, index: Tensor) -> Tensor:
        """The slices `index` [n] of `dim`; without dims, the one element."""
        name = "index_select"
        dim = normalize_dim(dim, self.dim(), name)
        if isinstance(index, Tensor) and not index.dim():
            index = index.unsqueeze(0)
        index = check_index(name, self, index, 1)
        if self.dim():
            return indexing.IndexSelect.apply(self, dim, index)
        if len(index) != 1:
            raise ValueError(
                f"{name}: the index is {index.raw.shape}; a tensor without dimensions "
                f"has one element, so that it must be one 0"
            )
        return self.reshape(1).index_select(0, index).reshape(())

    def sort(self, dim: Any = -1, descending: Bool = False) -> Any:
        """Sorted values along `dim`, and where they were; the sort is stable."""
        dim = normalize_dim(dim, self.dim(), "sort")
        if self.dim() == 0:
            return ValuesIndices(self.clone(), self.new_tensor(0))
        _, index = self.backend.sort(self.raw, dim, bool(descending))
        index = self.wrap(index)
        return ValuesIndices(indexing.Gather.apply(self, dim, index), index)

    def argsort(self, dim: Any = -1, descending: Bool = False) -> Tensor:
        """The order that sorts `dim`."""
        return self.detach().sort(dim, descending).indices

    def topk(self, k: Int, dim: Any = -1, largest: Bool = True) -> Any:
        """The k largest (or smallest) along `dim`, best first, and where they were."""
        if not 0 <= k <= (self.size(dim) if self.dim() else 1):
            raise ValueError(
                f"topk: k is {k}; it must be from 0 to the size of dimension {dim}, "
                f"{self.size(dim) if self.dim() else 1}"
            )
        values, indices = not_bool("topk", self).sort(dim, largest)
        if self.dim() == 0:
            return ValuesIndices(values, indices)
        return ValuesIndices(values.narrow(dim, 0, k), indices.narrow(dim, 0, k))

    # ------------------------------------------------------- softmax and the like

    def softmax(self, dim: Any) -> Tensor:
        """exp(x) / sum(exp(x)) along `dim`."""
        return self._along("softmax", Softmax, dim)

    def log_softmax(self, dim: Any) -> Tensor:
        """x - logsumexp(x) along `dim`."""
        return self._along("log_softmax", LogSoftmax, dim)

    def _along(self, name: str, op: Operation, dim: Any) -> Tensor:
        """An operation on rows; a tensor without dims is a row of one element."""
        a, dim = check_floating(name, self), normalize_dim(dim, self.dim(), name)
        return op.apply(a, dim) if a.dim() else op.apply(a.reshape(1), 0).reshape(())


class Size(tuple):
    """A shape: a tuple of ints that prints as PyTorch's does."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"minitorch.Size({list(self)})"

    def numel(self) -> int:
        """How many elements a tensor of this shape has."""
        return numel(self)


class ValuesIndices(tuple):
    """The pair (values, indices) with names."""

    __slots__ = ()

    def __new__(cls, values: Tensor, indices: Tensor) -> ValuesIndices:
        return super().__new__(cls, (values, indices))

    @property
    def values(self) -> Tensor:
        return self[0]

    @property
    def indices(self) -> Tensor:
        return self[1]


class Handle:
    """A registered hook; `remove()` takes it away."""

    def __init__(self, hooks: list[Callable], hook: Callable) -> None:
        self.hooks = hooks
        self.hook = hook
        last = bool(hooks) and type(hooks[-1]) is KeepGrad  # it sees what others return
        hooks.insert(len(hooks) - last, hook)

    def remove(self) -> None:
        """Don't call the hook any more."""
        if self.hook in self.hooks:
            self.hooks.remove(self.hook)
        self.hooks = []  # the same hook may be registered twice; remove one only


class KeepGrad:
    """The hook behind `retain_grad`; it does not keep the tensor alive."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)

    def __call__(self, grad: Tensor) -> None:
        """Add to the tensor's `.grad`."""
        tensor = self.tensor()
        if tensor is not None:  # the gradient itself goes on to what is below
            tensor.grad = grad.clone() if tensor.grad is None else tensor.grad + grad


def _pow(a: Any, b: Any) -> Tensor:
    """a ** b where one, at least, is a tensor."""
    a, b = operands("pow", a, b)
    return ew.Pow.apply(not_bool("pow", a), b)


def choose(condition: Any, a: Any, b: Any) -> Tensor:
    """a where the bool tensor `condition` holds, else b; numbers are allowed."""
    condition = only_bool("where", condition)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        kind = dtypes.promote(dtypes.infer(a), dtypes.infer(b))
        a, b = scalar_like(condition, a, kind), scalar_like(condition, b, kind)
    a, b = operands("where", a, b)
    check_same_device("where", condition, a)
    check_broadcast("where", condition.raw.shape, a.raw.shape, b.raw.shape)
    return ew.Where.apply(condition, a, b)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`; no `.grad` is touched.

    Raises:
        RuntimeError: an output does not depend on one of the inputs, unless
            `allow_unused` (its gradient is then None).
    """
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    ends = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    given: list[Any] = [None] * len(roots)
    if grad_outputs is not None:
        one = isinstance(grad_outputs, Tensor)
        given = [grad_outputs] if one else list(grad_outputs)
    for x in [*roots, *ends]:
        if x.edge() is None:
            raise RuntimeError(
                f"grad: a tensor of shape {x.raw.shape} does not require grad"
            )
    starts = [start_gradient("grad", r, g) for r, g in zip(roots, given)]
    keep = create_graph if retain_graph is None else retain_graph
    results = backpropagate(roots, starts, keep, create_graph, ends)
    assert results is not None
    if not allow_unused and any(g is None for g in results):
        raise RuntimeError(
            "grad: the outputs do not depend on one of the inputs; pass "
            "allow_unused=True to get None for it"
        )
    return tuple(results)


def _rebuild(
    kind: type[Tensor], raw: TensorData, requires_grad: bool, grad: Tensor | None
) -> Tensor:
    """A leaf of class `kind` around `raw`."""
    out = kind.__new__(kind)
    Tensor.__init__(out, raw, requires_grad)
    out.grad = grad
    return out


def _unpickle(
    kind: type[Tensor], array: np.ndarray, device: str, requires_grad: bool
) -> Tensor:
    """What `Tensor.__reduce__` stored."""
    return _rebuild(kind, get_backend(device).from_numpy(array), requires_grad, None)


def _pad(a: Tensor, pad: tuple[int, ...], value: Any) -> Tensor:
    if len(pad) % 2 or len(pad) > 2 * a.dim():
        raise ValueError(
            f"pad: {pad} for {a.dim()} dimension(s); give (before, after) for the last "
            f"dim, then for the one before it, and so on"
        )
    inner: list[Any] = [slice(None)] * a.dim()
    for i in range(len(pad) // 2):
        dim = a.dim() - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        keep = a.raw.shape[dim] + min(before, 0) + min(after, 0)
        if keep < 0:
            raise ValueError(
                f"pad: {pad} cuts more off dimension {dim} than its size "
                f"{a.raw.shape[dim]}"
            )
        a = a.narrow(dim, max(-before, 0), keep)
        inner[dim] = slice(max(before, 0), max(before, 0) + keep)
    shape = list(a.raw.shape)
    for i in range(len(pad) // 2):
        shape[-1 - i] += max(pad[2 * i], 0) + max(pad[2 * i + 1], 0)
    out = a.new_full(shape, value)
    out[tuple(inner)] = a
    return out


def _root(a: Tensor) -> Tensor:
    """sqrt(a), whose slope is taken to be 0, not infinite, where a is 0."""
    if not (a.requires_grad and grad_mode.enabled):
        return a.sqrt()
    flat = a == 0
    return a.masked_fill(flat, 1.0).sqrt().masked_fill(flat, 0.0)


def _drop(a: Tensor, dims: tuple[int, ...], keepdim: Any) -> Tensor:
    """Without the reduced dims, each of which has size 1."""
    if keepdim or not dims:
        return a
    keep = tuple(n for i, n in enumerate(a.raw.shape) if i not in dims)
    return movement.View.apply(a, keep)
