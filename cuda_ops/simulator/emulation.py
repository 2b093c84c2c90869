"""What warps do, for the simulator, where every CUDA thread is a Python thread.

The functions here have the names of those in `cuda_ops/block/intrinsics.py` and take
their place in the simulator. Lanes of a warp hand each other values through a table,
with a barrier between writing and reading (`exchange`).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

WARP = 32


class Warp:
    """Up to 32 threads, and two tables of values that they use in turns.

    A lane that is at its next exchange may still be waited for in this one, but nobody
    can be two ahead, since every exchange waits for all.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.waiting: list[Any] = []  # lanes that are at an exchange
        self.tables: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self.turns = [0] * WARP


def _warp() -> tuple[Warp, int]:
    """The calling thread's warp, and its lane."""
    thread: Any = threading.current_thread()
    block = thread._manager
    index, lane = divmod(thread.thread_id, WARP)
    warps = block.warps
    if index not in warps:
        size = int(np.prod(block._block_dim))
        warps[index] = Warp(min(WARP, size - index * WARP))
    return warps[index], lane


def exchange(value: Any) -> tuple[dict[int, Any], int]:
    """The values of all lanes of the warp, by lane, and the lane that asks."""
    warp, lane = _warp()
    table = warp.tables[warp.turns[lane] % 2]
    warp.turns[lane] += 1
    table[lane] = value
    thread: Any = threading.current_thread()
    thread._manager.meet(warp.waiting, warp.lanes)
    return table, lane


def shuffle_xor(value: Any, mask: int) -> Any:
    """The value of lane `lane ^ mask`."""
    table, lane = exchange(value)
    return table.get(lane ^ mask, value)


def shuffle_down(value: Any, lanes: int) -> Any:
    """The value of the lane `lanes` above, or one's own where there is none."""
    table, lane = exchange(value)
    return table.get(lane + lanes, value)


def shuffle_up(value: Any, lanes: int) -> Any:
    """The value of the lane `lanes` below, or one's own where there is none."""
    table, lane = exchange(value)
    return table.get(lane - lanes, value)


def shuffle(value: Any, source: int) -> Any:
    """The value of lane `source`."""
    return exchange(value)[0][source % WARP]


def ballot(condition: Any) -> int:
    """A bit for each lane: whether its condition holds."""
    table, _ = exchange(bool(condition))
    return sum(1 << lane for lane, holds in table.items() if holds)


def sync_warp() -> None:
    """Wait for all lanes of the warp."""
    exchange(None)


def lane_index() -> int:
    """The thread's place in its warp, 0 to 31."""
    thread: Any = threading.current_thread()
    return thread.thread_id % WARP


def warp_index() -> int:
    """The warp's place in its block."""
    thread: Any = threading.current_thread()
    return thread.thread_id // WARP


# ------------------------------------------------------------------------- memory


def load(array: Any, i: int) -> Any:
    """array[i]"""
    _check(array, i, 1)
    return array[i]


def store(array: Any, i: int, value: Any) -> None:
    """array[i] = value"""
    _check(array, i, 1)
    _put(array, i, value)


def load4(array: Any, i: int) -> tuple[Any, Any, Any, Any]:
    """array[i], ..., array[i + 3]"""
    _check(array, i, 4)
    return array[i], array[i + 1], array[i + 2], array[i + 3]


def store4(array: Any, i: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """array[i], ..., array[i + 3] = a, b, c, d"""
    _check(array, i, 4)
    _put(array, i, a)
    _put(array, i + 1, b)
    _put(array, i + 2, c)
    _put(array, i + 3, d)


def load2(array: Any, i: int) -> tuple[Any, Any]:
    """array[i], array[i + 1]"""
    _check(array, i, 2)
    return array[i], array[i + 1]


def store2(array: Any, i: int, a: Any, b: Any) -> None:
    """array[i], array[i + 1] = a, b"""
    _check(array, i, 2)
    _put(array, i, a)
    _put(array, i + 1, b)


def _put(array: Any, i: int, value: Any) -> None:
    """array[i] = value, with the chip's conversion: integers wrap around."""
    if isinstance(value, (np.integer, np.floating)):
        value = value.astype(array.dtype)
    array[i] = value


def _check(array: Any, i: int, count: int) -> None:
    """What would be an illegal or misaligned access on the GPU is an error here."""
    if i < 0 or i + count > array.shape[0]:
        raise IndexError(
            f"elements {i} to {i + count - 1} of an array with {array.shape[0]}"
        )
    if array.ndim != 1:
        raise TypeError(f"the array has {array.ndim} dimensions; expected 1")
    if count > 1:
        address = array.__array_interface__["data"][0] + int(i) * array.itemsize
        if address % min(16, count * array.itemsize):
            raise RuntimeError(f"element {i} is not aligned for {count} at once")


def cp_async16(shared: Any, i: int, array: Any, j: int, inside: bool) -> None:
    """16 bytes from array[j] on to shared[i] on; zeros if not `inside`."""
    for k in range(16 // shared.itemsize):
        shared[i + k] = array[j + k] if inside else 0


def cp_async_commit() -> None:
    """Nothing: copies are done at once."""


def cp_async_wait(groups: int) -> None:
    """Nothing: copies are done at once."""


def to_tf32(x: Any) -> Any:
    """x rounded to the 10 bits of fraction that tensor cores read, half away from 0"""
    bits = np.float32(x).view(np.uint32)
    if np.isfinite(np.float32(x)):
        bits = np.uint32(int(bits) + 0x1000)
    return np.uint32(int(bits) & 0xFFFFE000).view(np.float32)


def _cut(x: Any) -> float:
    """x as tensor cores read it: without the lower 13 bits."""
    return float(np.uint32(int(np.float32(x).view(np.uint32)) & 0xFFFFE000).view("f4"))


def mma_tf32(
    a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any,
    c0: Any, c1: Any, c2: Any, c3: Any,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The lane's part of A [16, 8] @ B [8, 8] + C [16, 8]."""
    table, lane = exchange((a0, a1, a2, a3, b0, b1))
    group, place = divmod(lane, 4)

    def element(row: int, column: int, start: Any) -> Any:
        total = float(start)
        for k in range(8):
            a = table[row % 8 * 4 + k % 4][row // 8 + 2 * (k // 4)]
            b = table[column * 4 + k % 4][4 + k // 4]
            total += _cut(a) * _cut(b)
        return np.float32(total)

    return (
        element(group, 2 * place, c0),
        element(group, 2 * place + 1, c1),
        element(group + 8, 2 * place, c2),
        element(group + 8, 2 * place + 1, c3),
    )


def fresh(name: str) -> int:
    """The index of the thread or block that `name` stands for."""
    thread: Any = threading.current_thread()
    kind, axis = name.split(".")
    index = thread.threadIdx if kind == "tid" else thread.blockIdx
    return {"x": index.x, "y": index.y, "z": index.z}[axis]


# ----------------------------------------- arrays at an address (for optim.py)


def array_at(pointer: int, size: int, like: Any) -> Any:
    """A flat array of `size` elements of the type of `like`, at a host address."""
    nbytes = int(size) * like.itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(int(pointer))
    return np.frombuffer(memory, like.dtype)


# ----------------------------------------------------------- types (for reduce.py)


def same_type(value: Any, like: Any) -> Any:
    """`value` in the type of `like`; whole numbers lose what does not fit."""
    return np.asarray(value).astype(type(like))[()]
