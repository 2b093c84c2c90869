"""Fences: what a kernel writes behind the end of an array, or before it, shows.

With this file a worker makes a call (`watching`) in which every array that a backend
takes lies between two fences, and looks at all of them when it is over:

    | 512 bytes of a canary | the elements | 512 bytes of a canary |

Compiled code does not check bounds. What it writes next to an array is mostly nobody's,
and the call goes well; sometimes it is another array's, and a wrong number turns up
somewhere else. 512 bytes keep the alignment that kernels ask about.

A canary is a signalling NaN for floats, a huge number for integers, so that what is
read there shows as well; and so does what is never written, since the elements begin
with it. Each array has another one: a kernel that goes too far in all its arrays would
copy fence to fence. It is signalling because arithmetic makes a quiet NaN of it, so
that `out[i] += x` leaves a trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

BYTES = 512  # of a fence; GPU memory comes in such pieces
HELD = 2**28  # bytes of arrays that are held until a call is over
COMPILED = ("cpu", "cuda", "mojo")  # devices whose kernels do not check bounds

# For each size of elements: the smallest canary but one, and how many there are.
CANARIES = {
    8: (0x7FF0 << 48, 1 << 50),
    4: (0x7F80 << 16, 1 << 21),
    2: (0x7F80, 0x3F),
    1: (2, 0xFD),
}


@dataclass(frozen=True)
class Fenced:
    """An array between fences.

    Attributes:
        whole: the array and both fences, flat.
        start: the address of its first element.
        bits: the canary, as an unsigned number of the elements' size.
    """

    whole: Any
    start: int
    bits: int

    def broken(self) -> tuple[str, int] | None:
        """Where somebody wrote, and the nearest index at which it was."""
        width = BYTES // self.whole.dtype.itemsize
        size = len(self.whole) - 2 * width
        behind = np.flatnonzero(_words(self.whole[width + size :]) != self.bits)
        if behind.size:
            return "behind the end", size + int(behind[0])
        before = np.flatnonzero(_words(self.whole[:width]) != self.bits)
        if before.size:
            return "before the beginning", int(before[-1]) - width
        return None

    def problem(self, name: str) -> str:
        """What is wrong with it, "" if nothing is."""
        found = self.broken()
        if found is None:
            return ""
        side, index = found
        dtype = self.whole.dtype
        size = len(self.whole) - 2 * BYTES // dtype.itemsize
        called = f", `{name}`" if name else ""
        return (
            f"a kernel wrote {side} of an array of {size:,} elements ({dtype}){called}:"
            f" index {index:,}"
        )


class Fences:
    """The fences of a call.

    Attributes:
        names: for the addresses of some arrays, what they are called.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._held: deque[Fenced] = deque()
        self._bytes = self._count = 0
        self._problem = ""

    def around(self, take: Any, size: int, dtype: Any) -> Any:
        """An array of `size` elements between two fences (`backend.fences.around`)."""
        width = BYTES // dtype.itemsize
        whole = take(size + 2 * width, dtype)
        first, count = CANARIES[dtype.itemsize]
        self._count += 1
        bits = first + 1 + self._count % count
        _fill(whole, bits)
        array = _between(whole, size)
        self._held.append(Fenced(whole, _address(array), bits))
        self._bytes += whole.nbytes
        if self._bytes > HELD:
            self._look(HELD // 2)
        return array

    def _look(self, most: int) -> None:
        """Look at the oldest arrays, and forget them, until `most` bytes are held."""
        if any(not isinstance(fenced.whole, np.ndarray) for fenced in self._held):
            from cuda_ops.runtime import device

            device.synchronize()
        while self._held and self._bytes > most:
            fenced = self._held.popleft()
            self._bytes -= fenced.whole.nbytes
            name = self.names.get(fenced.start, "")
            self._problem = self._problem or fenced.problem(name)

    def check(self) -> None:
        """Look at all arrays.

        Raises:
            IndexError: there was something next to an array.
        """
        self._look(0)
        if self._problem:
            raise IndexError(self._problem)


_current: list[Fences] = []  # of the call that is being made


@contextmanager
def watching(device: str) -> Iterator[None]:
    """Let all arrays that a device's backend takes within the block lie between fences.

    Raises:
        IndexError: at the end, if somebody wrote to one.
    """
    if device not in COMPILED:
        yield
        return
    from minitorch.backend import fences

    made = Fences()
    _current.append(made)
    fences.around = made.around
    try:
        yield
    finally:
        fences.around = None
        _current.pop()
    made.check()


def fenced(array: np.ndarray) -> np.ndarray:
    """The numbers of a flat array between fences; while nobody looks, the array."""
    if not _current:
        return array
    from minitorch.backend.host.workspace import line_array
    from minitorch.dtypes import from_numpy_dtype

    made = line_array(array.size, from_numpy_dtype(array.dtype))
    made[:] = array
    return made


def name(tensors: Mapping[str, Any]) -> None:
    """Say what tensors are called, for the error about one."""
    for made in _current:
        for word, tensor in tensors.items():
            storage = getattr(getattr(tensor, "raw", tensor), "storage", None)
            if storage is not None:
                made.names[_address(storage.array)] = word


# ------------------------------------------------------- memory of the host and of GPUs


def _address(array: Any) -> int:
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.pointer)


def _between(whole: Any, size: int) -> Any:
    """The elements behind the first fence."""
    if isinstance(whole, np.ndarray):  # of which an empty slice would begin at 0
        return np.ndarray(size, whole.dtype, whole.view(np.uint8), BYTES)
    width = BYTES // whole.dtype.itemsize
    return whole[width : width + size]


def _fill(array: Any, bits: int) -> None:
    """All elements are these bits."""
    kind = f"u{array.dtype.itemsize}"
    if isinstance(array, np.ndarray):
        array.view(kind).fill(bits)
        return
    from cuda_ops.runtime import staging

    staging.to_device(array, np.full(len(array), bits, kind))


def _words(array: Any) -> np.ndarray:
    """The bits of the elements."""
    kind = f"u{array.dtype.itemsize}"
    if isinstance(array, np.ndarray):
        return array.view(kind)
    from cuda_ops.runtime import staging

    out = np.empty(len(array), kind)
    staging.to_host(out, array)
    return out
