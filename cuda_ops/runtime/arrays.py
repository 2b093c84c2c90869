"""Flat arrays in GPU memory: what `Storage.array` is on the device "cuda".

With this file one can get memory for elements (`allocate`) and hold on to it
(`DeviceArray`). There is a class for each element type (`ARRAYS`), because kernels are
looked up by the types of their arguments. A slice shares the memory and keeps the array
that owns it alive; when the owner is gone, its memory goes back to the pool.

In the simulator the arrays are NumPy's.
"""

from __future__ import annotations

from functools import cache, partial
from threading import RLock
from typing import Any, ClassVar

import numpy as np

from cuda_ops.runtime import device
from cuda_ops.runtime.allocator import Block
from cuda_ops.simulator import SIMULATED
from minitorch import dtypes
from minitorch.backend import fences
from minitorch.dtypes import DType

_new = object.__new__
_GIVING = RLock()  # one thread at a time gives an array its memory


class DeviceArray:
    """`size` elements side by side in GPU memory.

    Attributes:
        pointer: the address of the first element.
        shape: (size,)
        words: what a launch packs: the address and the number of elements.
        block: the memory, if this array owns it.
        base: what has to stay alive as long as this array: the owner of the memory.
        number: the value of an array of one element that has no memory yet. It gets
            memory when somebody first asks for its address. Most numbers in programs
            (`x * 2`) never need any, since kernels can take them as arguments.
        inside: of such an array, whether it was made while a graph was captured.
        gpu: of such an array, where it gets its memory.
    """

    __slots__ = (
        "base", "block", "gpu", "inside", "number", "pointer", "shape", "words",
    )  # fmt: skip

    inside: bool
    gpu: device.Gpu
    itemsize: ClassVar[int]
    dtype: ClassVar[np.dtype]
    kind: ClassVar[DType]
    word: ClassVar[str]  # for `cuda_ops.runtime.compiler.signature`

    def __init__(
        self, pointer: int, size: int, block: Block | None, base: Any = None
    ) -> None:
        self.pointer = pointer
        self.shape = (size,)
        self.block = block
        self.base = base
        self.number = None
        self.words = (pointer, size)

    @classmethod
    def of_number(cls, number: Any) -> DeviceArray:
        """An array of one element, which gets memory when that is needed."""
        made = cls.__new__(cls)
        made.shape = (1,)
        made.block = made.base = None
        made.number = number
        made.inside = device.current.capture is not None
        made.gpu = device.current.gpu
        return made

    def __getattr__(self, name: str) -> Any:
        """Called for what is not there yet: a number's memory."""
        if name not in ("pointer", "words"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        with _GIVING:
            if self.number is not None:  # else another thread has been here first
                with device.on(self.gpu):
                    self._give_memory()
        return object.__getattribute__(self, name)

    def _give_memory(self) -> None:
        number, item, here = self.number, self.itemsize, device.current
        capture = here.capture
        if capture is None or self.inside:
            self.block = here.pool.take(item, here.key)
            self.pointer = self.block.pointer
            self._write(number)
        else:
            # It is older than the graph that is being captured, and may outlast it: a
            # replay must not write it again.
            self.block = here.gpu.pool.take(item, here.key)
            self.pointer = self.block.pointer
            capture.afterwards.append(partial(self._write, number))
        self.number = None
        self.words = (self.pointer, 1)  # last: a thread that sees it sees the number

    def _write(self, number: Any) -> None:
        """Put a number into the memory of an array of one element."""
        item, api = self.itemsize, device.driver()
        bits = np.asarray(number, self.dtype).view(f"u{item}")
        if item == 8:
            low, high = int(bits) & 0xFFFFFFFF, int(bits) >> 32
            calls = [
                (api.cuMemsetD32Async, self.pointer, low),
                (api.cuMemsetD32Async, self.pointer + 4, high),
            ]
        else:
            writes = {
                4: api.cuMemsetD32Async, 2: api.cuMemsetD16Async,
                1: api.cuMemsetD8Async,
            }  # fmt: skip
            calls = [(writes[item], self.pointer, int(bits))]
        for write, pointer, value in calls:
            device.call(
                "writing a number", write, pointer, value, 1, device.current.handle
            )

    def __del__(self) -> None:
        if self.block is not None:
            self.block.free_later()

    @property
    def size(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> DeviceArray:
        """Some neighbouring elements, without a copy."""
        if not isinstance(part, slice):
            raise TypeError(
                f"a device array takes slices, not {part!r}; copy it to the host, with "
                f"to_numpy, to read elements"
            )
        start, stop, step = part.indices(self.shape[0])
        if step != 1:
            raise ValueError(f"a slice of a device array has step 1, not {step}")
        return type(self)(
            self.pointer + start * self.itemsize,
            max(stop - start, 0),
            None,
            self if self.base is None else self.base,
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For Numba, CuPy and torch, which share the memory then."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "strides": None,
            "version": 3,
            "stream": device.current.key or 1,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} elements)"


def _array_of(kind: DType) -> type[DeviceArray]:
    """The arrays of an element type."""
    about = {"itemsize": kind.itemsize, "dtype": kind.numpy, "kind": kind}
    about |= {"word": f"{kind.name}[]", "__slots__": (), "__module__": __name__}
    return type(f"DeviceArray[{kind.name}]", (DeviceArray,), about)


# What kernels take the bits of 16-bit numbers for.
BITS = DType("uint16", 1)
WordArray = _array_of(BITS)  # of kernels that do not compute with them
ARRAYS = {kind: _array_of(kind) for kind in dtypes.ALL}


def _allocate(size: int, dtype: DType, alone: bool = False) -> DeviceArray:
    """Memory for `size` elements, which have no particular value.

    A replay of a graph would write fences again, so in a capture there are none.

    Args:
        alone: without what stands around arrays (`fences.around`).
    """
    here = device.current
    if fences.around is not None and here.capture is None and not alone:
        return fences.around(partial(_allocate, alone=True), size, dtype)
    block = here.pool.take(size * dtype.itemsize, here.key)
    out = _new(ARRAYS[dtype])  # and `__init__`, without a call
    out.block = block
    out.pointer = pointer = block.pointer
    out.words = pointer, size
    out.shape = (size,)
    out.base = out.number = None
    return out


def _allocate_simulated(size: int, dtype: DType, alone: bool = False) -> np.ndarray:
    """A NumPy array for the simulator; in a graph, one that lives as long as that."""
    if fences.around is not None and device.current.capture is None and not alone:
        return fences.around(partial(_allocate_simulated, alone=True), size, dtype)
    array = np.empty(size, dtype.numpy)
    if device.current.capture is not None:
        device.current.capture.kept.append(array)
    return array


allocate: Any = _allocate_simulated if SIMULATED else _allocate


@cache
def nothing(dtype: DType) -> Any:
    """The array without elements, which has no memory, for what a kernel may get."""
    return np.empty(0, dtype.numpy) if SIMULATED else ARRAYS[dtype](0, 0, None)
