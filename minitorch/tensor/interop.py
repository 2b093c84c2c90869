"""Tensors to and from Python, NumPy, other libraries and other devices.

With this file one can read the numbers of a tensor, share its memory, and bring it to
another device or dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import minitorch.dtypes as dtypes
from minitorch.arguments import check_pinnable, int_sequence, parse_to
from minitorch.dtypes import DType, Number
from minitorch.executor import host_read
from minitorch.functions import movement
from minitorch.functions.operands import cast, checked_tensor
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.tensor.core import Tensor


class Interop:
    """The methods that hand numbers over, and that make new tensors like this."""

    __slots__ = ()

    def item(self: Any) -> Any:
        """The only element as a Python number."""
        if self.raw.size == 1:
            return host_read("item()", self.raw).item()
        return self._number("item()")

    def _number(self: Any, name: str) -> Any:
        if self.raw.size != 1:
            raise ValueError(
                f"{name}: the tensor has {self.numel()} elements (shape "
                f"{self.raw.shape}); it must have exactly one; use .tolist()"
            )
        return host_read(name, self.raw).item()

    def tolist(self: Any) -> Any:
        """The elements as nested lists of Python numbers."""
        return host_read("tolist()", self.raw).tolist()

    def numpy(self: Any) -> np.ndarray:
        """A NumPy array of the elements; on the CPU it shares the memory."""
        if self.requires_grad:
            raise RuntimeError(
                "numpy(): the tensor requires grad, and NumPy would not record what is "
                "done to it; use .detach().numpy()"
            )
        return host_read("numpy()", self.raw)

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        a = self.numpy()
        return np.asarray(a, dtype) if copy is None else np.array(a, dtype, copy=copy)

    def __dlpack__(self: Any, **options: Any) -> Any:
        return self.backend.to_dlpack(self._without_grad("__dlpack__"), **options)

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        return self.backend.dlpack_device(self.raw)

    @property
    def __cuda_array_interface__(self: Any) -> dict[str, Any]:
        """For Numba, CuPy and torch: where the memory on the GPU is."""
        interface = self.backend.cuda_array_interface(self.raw)
        self._without_grad("sharing")
        return interface

    def _without_grad(self: Any, name: str) -> TensorData:
        if self.requires_grad:
            raise RuntimeError(
                f"{name}: the tensor requires grad, and others would not record what "
                f"is done to it; use .detach() first"
            )
        return self.raw

    def to(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        """On another device, or in another dtype, or both: `to("cuda", float32)`.

        With `non_blocking=True` nobody waits for a copy between the CPU's pinned memory
        (`pin_memory`) and "cuda", as in PyTorch: the numbers that are copied must not
        be changed before the work on the stream is done, and a copy on the CPU must not
        be read before (`minitorch.cuda.synchronize`). Between two GPUs nobody waits.
        """
        device, dtype, non_blocking = parse_to("to", *args, **kwargs)
        out = cast(self, dtype) if dtype is not None else self
        if device is not None and device != out.device:
            out = movement.ToDevice.apply(out, device, non_blocking)
        return out

    def pin_memory(self: Any) -> Tensor:
        """In memory from which `to("cuda", non_blocking=True)` copies on its own.

        Itself, if it already is there.
        """
        check_pinnable(self)
        return self if self.is_pinned() else movement.Pin.apply(self)

    def is_pinned(self: Any) -> bool:
        """Whether it is in pinned memory."""
        return movement.is_pinned(self)

    def cpu(self: Any) -> Tensor:
        """On the default device "cpu"."""
        return self.to("cpu")

    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Tensor:
        """On a GPU: the current one, or that of a number or a name."""
        where = "cuda" if device is None else device
        return self.to(where, non_blocking=non_blocking)

    def type(self: Any, dtype: DType) -> Tensor:
        """In another dtype."""
        return cast(self, dtypes.check(dtype))

    def float(self: Any) -> Tensor:
        """As float32."""
        return cast(self, dtypes.float32)

    def half(self: Any) -> Tensor:
        """As float16."""
        return cast(self, dtypes.float16)

    def bfloat16(self: Any) -> Tensor:
        """As bfloat16."""
        return cast(self, dtypes.bfloat16)

    def type_as(self: Any, other: Tensor) -> Tensor:
        """In the dtype of `other`, and on its device."""
        there = checked_tensor("type_as", other).raw.storage
        out = cast(self, there.dtype)
        here = self.raw.storage.device == there.device
        return out if here else out.to(other.device)

    def double(self: Any) -> Tensor:
        """As float64."""
        return cast(self, dtypes.float64)

    def long(self: Any) -> Tensor:
        """As int64."""
        return cast(self, dtypes.int64)

    def int(self: Any) -> Tensor:
        """As int32."""
        return cast(self, dtypes.int32)

    def bool(self: Any) -> Tensor:
        """As bool: whether each element is not 0."""
        return cast(self, dtypes.bool_)

    # ------------------------------------------------------- new ones like this

    def new_tensor(self: Any, data: Any, dtype: DType | None = None) -> Tensor:
        """A tensor of `data` on this device, by default of this dtype."""
        from minitorch.creation import tensor

        return tensor(data, dtype=dtype or self.dtype, device=self.raw.device)

    def new_full(
        self: Any, shape: Any, value: Number, *, dtype: DType | None = None
    ) -> Tensor:
        """`value` in all of `shape`, on this device, by default of this dtype."""
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        dtype = self.dtype if dtype is None else dtypes.check(dtype)
        value = dtypes.check_number(value, dtype)
        return self.wrap(self.backend.full(shape, value, dtype))

    def new_zeros(self: Any, *shape: Any, dtype: DType | None = None) -> Tensor:
        """Zeros of `shape`, on this device, by default of this dtype."""
        return self.new_full(int_sequence("new_zeros", shape), 0, dtype=dtype)

    def new_ones(self: Any, *shape: Any, dtype: DType | None = None) -> Tensor:
        """Ones of `shape`, on this device, by default of this dtype."""
        return self.new_full(int_sequence("new_ones", shape), 1, dtype=dtype)

    def arange_like(self: Any) -> Tensor:
        """0, 1, ... numel - 1 as int64, on this device."""
        return self.new_tensor(np.arange(self.numel()), dtypes.int64)
