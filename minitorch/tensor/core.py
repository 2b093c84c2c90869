"""What a tensor is, and its place in the graph of operations.

With this file one can see what `Tensor` holds: a backend's `TensorData` and what
backpropagation needs. What one can do with tensors stands in the other rooms of this
folder, and the mathematics in `minitorch/functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minitorch.arguments import existing_dim, start_gradient
from minitorch.autodiff import Edge, Node, backpropagate
from minitorch.backend import get_backend, half_backends, loaded_backends
from minitorch.devices import device, named
from minitorch.dtypes import DType, float32
from minitorch.executor import host_read
from minitorch.functions import inquiry
from minitorch.tensor.elementwise import Elementwise
from minitorch.tensor.hooks import Handle, KeepGrad
from minitorch.tensor.in_place import InPlace
from minitorch.tensor.indexing import Indexing
from minitorch.tensor.interop import Interop
from minitorch.tensor.movement import Movement
from minitorch.tensor.reductions import Reductions
from minitorch.tensor_data import TensorData, numel

_new = object.__new__  # what a class does before __init__, without going through C


class Tensor(Elementwise, Reductions, Movement, Indexing, InPlace, Interop):
    """A tensor on one device. Make one with `minitorch.tensor(...)` and its kin.

    `Tensor([1, 2])` is float32 whatever the numbers are, as in PyTorch.

    Attributes:
        raw: storage, shape, strides and offset (`TensorData`), without any gradient.
        requires_grad: whether operations on this are recorded.
        grad: the gradient that backward passes have added up, None before the first.
        node: the recorded operation that made this, None for a leaf.
    """

    __slots__ = ("raw",)
    __array_priority__ = 1000  # NumPy leaves `array + tensor` to us

    raw: TensorData
    is_sparse = is_xpu = False  # what programs ask before they do something else

    def __init__(
        self,
        raw: TensorData,
        requires_grad: bool = False,
        node: Node | None = None,
        index: int = 0,
    ) -> None:
        if isinstance(raw, (list, tuple, np.ndarray)):
            from minitorch.creation import tensor

            raw = tensor(raw, dtype=float32).raw
        if not isinstance(raw, TensorData):
            raise TypeError(
                f"Tensor: got a {type(raw).__name__}; use minitorch.tensor(data) to "
                f"make a tensor from numbers, lists or arrays"
            )
        self.raw = raw
        self.requires_grad = requires_grad
        self.grad: Tensor | None = None
        self.node = node
        self.output_index = index
        self._hooks = None
        self._post_hooks = None
        self._base = None

    @staticmethod
    def wrap(raw: TensorData, node: Node | None = None, index: int = 0) -> Tensor:
        """A tensor around what a backend returned: output `index` of `node`.

        Every result of an operation is made here: as by `__init__`, which would be one
        call more, and would ask what it is given.
        """
        out = _new(Tensor)
        out.raw = raw
        out.requires_grad = node is not None
        out.grad = None
        out.node = node
        out.output_index = index
        out._hooks = None
        out._post_hooks = None
        out._base = None
        return out

    # ------------------------------------------------------------ what it is

    @property
    def shape(self) -> Size:
        return Size(self.raw.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        if dim is None:
            return self.shape
        return self.raw.shape[existing_dim("size", self, dim)]

    def dim(self) -> int:
        """How many dimensions there are."""
        return len(self.raw.shape)

    @property
    def ndim(self) -> int:
        return len(self.raw.shape)

    numel = nelement = inquiry.numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def stride(self) -> tuple[int, ...]:
        """Storage elements from one index to the next, for each dimension."""
        return self.raw.strides

    def storage_offset(self) -> int:
        """The storage position of the first element."""
        return self.raw.offset

    def is_contiguous(self) -> bool:
        """Whether the elements lie row by row without gaps."""
        return self.raw.is_contiguous()

    is_floating_point = inquiry.is_floating_point

    @property
    def dtype(self) -> DType:
        return self.raw.storage.dtype

    @property
    def device(self) -> device:
        """Where the numbers are: "cpu", or "cuda:1", always with its index."""
        return named(self.raw.storage.device)

    @property
    def is_cuda(self) -> bool:
        """Whether the numbers are on a GPU."""
        return self.device.type == "cuda"

    @property
    def backend(self) -> Any:
        """The functions that compute on this tensor (`minitorch.backend.Backend`)."""
        storage = self.raw.storage
        if storage.dtype.half:
            return half_backends[storage.device]
        try:
            return loaded_backends[storage.device]
        except KeyError:
            return get_backend(storage.device)

    @property
    def grad_fn(self) -> Node | None:
        """The recorded operation that made this."""
        return self.node

    @property
    def _version(self) -> int:
        return self.raw.storage.version

    def __len__(self) -> int:
        if not self.raw.shape:
            raise TypeError("len(): a tensor without dimensions has no length")
        return self.raw.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.raw.shape:
            raise TypeError("iter: a tensor without dimensions cannot be iterated over")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __bool__(self) -> bool:
        if self.raw.size != 1:
            raise ValueError(
                f"bool(): a tensor of shape {self.raw.shape} is neither true nor "
                f"false; use .any() or .all()"
            )
        return bool(self._number("bool()"))

    def __float__(self) -> float:
        return float(self._number("float()"))

    def __int__(self) -> int:
        return int(self._number("int()"))

    def __index__(self) -> int:
        if self.dtype.is_floating_point:
            raise TypeError("index: a floating-point tensor cannot be one; use .long()")
        return int(self._number("index"))

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        from minitorch.printing import tensor_repr

        return tensor_repr(self)

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.dim() == 0 else repr(self), spec)

    # ------------------------------------------------------- copies and pickles

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with a copy of the numbers and of the gradient, for copy.deepcopy."""
        self._require_leaf("deepcopy")
        raw = self.backend.copy(self.raw, self.dtype)
        grad = None if self.grad is None else self.grad.__deepcopy__(memo)
        return _rebuild(type(self), raw, self.requires_grad, grad)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: the numbers, the device and requires_grad."""
        self._require_leaf("pickle")
        array = np.array(host_read("pickle", self.raw), order="C")
        return _unpickle, (type(self), array, self.raw.device, self.requires_grad)

    def _require_leaf(self, name: str) -> None:
        if not self.is_leaf:
            raise RuntimeError(
                f"{name}: the tensor is the result of an operation, and its graph is "
                f"not copied; detach() it first"
            )

    # ----------------------------------------------------------------- autograd

    def requires_grad_(self, mode: bool = True) -> Tensor:
        """Turn recording on or off for this leaf."""
        if not self.is_leaf:
            raise RuntimeError(
                "requires_grad_: only a leaf can be changed; use detach() to cut a "
                "tensor out of the graph"
            )
        if mode and not self.dtype.is_floating_point:
            raise RuntimeError(
                f"requires_grad_: the dtype is {self.dtype.name}; only "
                f"floating-point tensors have gradients"
            )
        self.requires_grad = bool(mode)
        return self

    def detach(self) -> Tensor:
        """The same memory, outside of the graph."""
        return Tensor.wrap(self.raw)

    def detach_(self) -> Tensor:
        """Leave the graph."""
        if self._base is not None:
            raise RuntimeError("detach_: this is a view of a tensor; use detach()")
        self.node, self.output_index, self.requires_grad = None, 0, False
        return self

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
        retain_graph: bool | None = None,
        create_graph: bool = False,
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

    def accumulate_grad(self, grad: Tensor, create_graph: bool) -> None:
        """Add `grad` to `.grad`, then run the post-accumulate hooks."""
        if self.grad is None:
            raw, shared = grad.raw, grad.raw.storage.shared  # see `mark_shared`
            if create_graph or shared or not raw.contiguous:
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


class Size(tuple):
    """A shape: a tuple of ints that prints as PyTorch's does."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"minitorch.Size({list(self)})"

    def numel(self) -> int:
        """How many elements a tensor of this shape has."""
        return numel(self)


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
