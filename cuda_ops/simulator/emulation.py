"""What warps do, for the simulator, where every CUDA thread is a greenlet.

The functions here have the names of those in `cuda_ops/block/intrinsics.py` and take
their place in the simulator. Lanes of a warp hand each other values through a table,
with a barrier between writing and reading (`exchange`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import cuda_ops.simulator.watch as watch
from cuda_ops.simulator.block import current_thread
from cuda_ops.simulator.watch import WARP

ALL_LANES = 0xFFFFFFFF


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
        self.round = 0


def _warp_of(thread: Any) -> Warp:
    """A thread's warp, which it joins at its first exchange."""
    warps, index = thread._manager.warps, thread.thread_id // WARP
    if index not in warps:
        size = int(np.prod(thread._manager._block_dim))
        warps[index] = Warp(min(WARP, size - index * WARP))
    thread.warp = warps[index]
    return warps[index]


def exchange(value: Any) -> tuple[dict[int, Any], int]:
    """The values of all lanes of the warp, by lane, and the lane that asks."""
    thread: Any = current_thread()
    warp, lane = thread.warp or _warp_of(thread), thread.thread_id % WARP
    table = warp.tables[warp.turns[lane]]
    warp.turns[lane] ^= 1
    table[lane] = value
    thread._manager.meet(warp.waiting, warp.lanes)
    return table, lane


def shuffle_xor(value: Any, mask: int) -> Any:
    """The value of lane `lane ^ mask`."""
    table, lane = exchange(value)
    return table.get(lane ^ mask, value)


def shuffle_up(value: Any, lanes: int) -> Any:
    """The value of the lane `lanes` below, or one's own where there is none."""
    table, lane = exchange(value)
    return table.get(lane - lanes, value)


def shuffle_down(value: Any, lanes: int) -> Any:
    """The value of the lane `lanes` above, or one's own where there is none."""
    table, lane = exchange(value)
    return table.get(lane + lanes, value)


def shuffle(value: Any, source: int) -> Any:
    """The value of lane `source`."""
    return exchange(value)[0][source % WARP]


def ballot(condition: Any) -> int:
    """A bit for each lane: whether its condition holds."""
    table, _ = exchange(bool(condition))
    return sum(1 << lane for lane, holds in table.items() if holds)


def sync_warp() -> None:
    """Wait for all lanes of the warp; then each sees what the others wrote.

    Unlike this, the exchanges above order no memory, in the simulator's eyes as well.
    """
    thread: Any = current_thread()
    warp = thread.warp or _warp_of(thread)
    if len(warp.waiting) == warp.lanes - 1:  # the last one to come
        warp.round += 1
    thread._manager.meet(warp.waiting, warp.lanes)


def _masked(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    """What Numba calls `name`: `act`, with a mask of the lanes that take part first."""

    def call(mask: int = ALL_LANES, *args: Any) -> Any:
        if mask & ALL_LANES != ALL_LANES:
            raise NotImplementedError(
                f"{name}: the mask is {mask:#x}; here all lanes must take part"
            )
        return act(*args)

    return call


_ACTS: dict[str, Callable[..., Any]] = {
    "syncwarp": sync_warp,
    "shfl_sync": shuffle,
    "shfl_up_sync": shuffle_up,
    "shfl_down_sync": shuffle_down,
    "shfl_xor_sync": shuffle_xor,
    "ballot_sync": ballot,
    "all_sync": lambda holds: all(exchange(holds)[0].values()),
    "any_sync": lambda holds: any(exchange(holds)[0].values()),
    "eq_sync": lambda holds: len(set(map(bool, exchange(holds)[0].values()))) == 1,
}
OF_NUMBA = {name: _masked(name, act) for name, act in _ACTS.items()}


# ------------------------------------------------------------------------- memory


def load(array: Any, i: int) -> Any:
    """array[i]"""
    if type(array) is np.ndarray and array.ndim == 1 and 0 <= i < array.size:
        value = array[i]  # what most kernels do most of the time
        return np.float32(value) if _is_half(array) else value
    return _get(array, i, 1)[0]


def store(array: Any, i: int, value: Any) -> None:
    """array[i] = value"""
    plain = type(array) is np.ndarray and array.ndim == 1 and 0 <= i < array.size
    if plain and type(value) is array.dtype.type:
        array[i] = value  # as `load`
    else:
        _put(array, i, value)


def from_bytes(word: Any) -> tuple[Any, ...]:
    """Four float32 of a word of four int8."""
    return tuple(np.array([word], np.uint32).view(np.int8).astype(np.float32))


def from_fours(word: Any) -> tuple[Any, ...]:
    """Eight float32 of four bytes 16 * high + low + 8: the four low ones first."""
    packed = np.array([word], np.uint32).view(np.int8)
    numbers = np.concatenate([(packed & 15) - 8, packed >> 4])
    return tuple(numbers.astype(np.float32))


def load2(array: Any, i: int) -> tuple[Any, ...]:
    """array[i], array[i + 1]"""
    return tuple(_get(array, i, 2))


def load4(array: Any, i: int) -> tuple[Any, ...]:
    """array[i], ..., array[i + 3]"""
    return tuple(_get(array, i, 4))


def load8(array: Any, i: int) -> tuple[Any, ...]:
    """array[i], ..., array[i + 7]"""
    return tuple(_get(array, i, 8))


def store4(array: Any, i: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """array[i], ..., array[i + 3] = a, b, c, d"""
    _put(array, i, a, b, c, d)


def store2(array: Any, i: int, a: Any, b: Any) -> None:
    """array[i], array[i + 1] = a, b"""
    _put(array, i, a, b)


def _is_half(array: Any) -> bool:
    """Whether it has float16 or bfloat16 numbers, which are float32 in registers."""
    return array.itemsize == 2 and array.dtype != np.uint16


def kind_of(array: Any) -> Any:
    """The type in which elements of an array are computed."""
    return np.float32 if _is_half(array) else array.dtype


def _get(array: Any, i: int, count: int) -> Any:
    """array[i], ..., array[i + count - 1]"""
    _check(array, i, count)
    values = watch.read(array, i, count, sys._getframe(2))
    return [np.float32(v) for v in values] if _is_half(array) else values


def _put(array: Any, i: int, *values: Any) -> None:
    """array[i], ... = values, with the chip's conversion: integers wrap around."""
    _check(array, i, len(values))
    if _is_half(array):
        values = tuple(map(np.float32, values))
    numbers = (np.integer, np.floating)
    made = [v.astype(array.dtype) if isinstance(v, numbers) else v for v in values]
    watch.write(array, i, made, sys._getframe(2))


def _check(array: Any, i: int, count: int) -> None:
    """What would be an illegal or misaligned access on the GPU is an error here."""
    if i < 0 or i + count > array.shape[0]:
        name, last = getattr(array, "name", "") or "the array", i + count - 1
        raise IndexError(
            f"a thread wants the elements {i} to {last} of {name}, which has the size "
            f"{array.shape[0]}"
        )
    if array.ndim != 1:
        raise TypeError(f"the array has {array.ndim} dimensions; expected 1")
    if count > 1:
        address = array.__array_interface__["data"][0] + int(i) * array.itemsize
        if address % min(16, count * array.itemsize):
            raise RuntimeError(f"element {i} is not aligned for {count} at once")


def word_of(x: Any) -> Any:
    """The bits of a float32."""
    return np.float32(x).view(np.uint32)


def float_of(word: Any) -> Any:
    """The float32 with these bits."""
    return np.uint32(word).view(np.float32)


def to_float16(x: Any) -> Any:
    """A float32 rounded to float16, as its bits."""
    with np.errstate(over="ignore"):
        return np.float16(x).view(np.uint16)


def from_float16(number: Any) -> Any:
    """The float32 that the bits of a float16 stand for."""
    return np.float32(np.uint16(number).view(np.float16))


def wait_for_previous() -> None:
    """Kernels run one after the other here."""


def prefetch(array: Any, i: int, count: int) -> None:
    """There are no caches here."""


def arrive(counter: Any, i: int) -> int:
    """Blocks come one after the other here."""
    before = np.ndarray.__getitem__(counter, i)  # no use that a watch looks at
    np.ndarray.__setitem__(counter, i, before + 1)
    return int(before)


def fresh(name: str) -> int:
    """The index of the thread or block that `name` stands for."""
    thread: Any = current_thread()
    kind, axis = name.split(".")
    index = thread.threadIdx if kind == "tid" else thread.blockIdx
    return {"x": index.x, "y": index.y, "z": index.z}[axis]


# ----------------------------------------- arrays at an address (for optim.py)


def array_at(pointer: int, size: int, like: Any) -> Any:
    """A flat array of `size` elements of the type of `like`, at a host address."""
    nbytes = int(size) * like.itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(int(pointer))
    array = np.frombuffer(memory, like.dtype)
    return watch.current[-1].wrap(array, "memory", False) if watch.current else array


# ----------------------------------------------------------- types (for reduce.py)


def same_type(value: Any, like: Any) -> Any:
    """`value` in the type of `like`; whole numbers lose what does not fit."""
    kind = type(like)
    return value if type(value) is kind else np.asarray(value).astype(kind)[()]
