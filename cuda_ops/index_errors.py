"""Bad indices: noticed on the device, raised on the host, and nobody waits.

With this file a kernel can report an index that is outside of its dimension, or a
number that is no probability (`bad_index`), and the host raises an error for it when it
next waits for the device anyway (`raise_pending`: called by `synchronize` and by copies
to the host).

A check before each launch would make the host wait for the device, which would then run
dry; in a CUDA graph it is not even possible. So kernels treat a bad index as if it were
not there (nothing is read or written for it) and leave a note in a small array in
pinned host memory, which both sides see. Looking at it costs the host one load.

    note   4 numbers for each operation: 1 if there is one, the index, the size, the dim

In the simulator, and with CUDA_LAUNCH_BLOCKING=1, the call itself raises the error.
Else the call that raises it is a later one, which the message says.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import device
from cuda_ops.runtime import device as gpu
from cuda_ops.runtime.arrays import ARRAYS
from cuda_ops.runtime.launch import SIMULATED
from minitorch import dtypes
from minitorch.backend.indexing import index_error
from minitorch.backend.softmax import not_probabilities

OPERATIONS = (
    "gather",
    "scatter_add",
    "index_select",
    "index_add",
    "index_copy_",
    "cross_entropy",
    "cross_entropy_backward",
    "nll_loss",
    "binary_cross_entropy",
    "scatter",
)
WORDS = 4  # numbers in a note
EARLIER = (
    ". The cause is an earlier operation than the one that raises this, since the "
    "program does not wait for the GPU. Run again with CUDA_LAUNCH_BLOCKING=1 in the "
    "environment, and the operation itself raises the error"
)


class Notes:
    """A GPU's array for notes, as the device and as the host see it."""

    def __init__(self, _: gpu.Gpu) -> None:
        self.on_host, self.on_device = _host_visible(WORDS * len(OPERATIONS))
        self.on_host.fill(0)


gpu.Gpu.parts["notes"] = Notes


@device
def bad_index(notes, operation, index, size, dim):
    """Leave a note: `index` is outside [0, size) in dimension `dim`.

    Of many bad indices of one operation, one is told; it does not matter which.
    """
    at = operation * 4
    notes[at + 1] = index
    notes[at + 2] = size
    notes[at + 3] = dim
    cuda.threadfence_system()
    notes[at] = 1


def notes() -> Any:
    """The array that kernels get for `bad_index`."""
    return gpu.current.gpu.notes.on_device


def _host_visible(size: int) -> tuple[np.ndarray, Any]:
    """int64 numbers in pinned host memory, as the host and as the device see them."""
    if SIMULATED:
        array = np.zeros(size, np.int64)
        return array, array
    what = "pinning memory for index errors"
    pointer = int(gpu.call(what, gpu.driver().cuMemHostAlloc, 8 * size, 0))
    memory: Any = (ctypes.c_int64 * size).from_address(pointer)
    return np.frombuffer(memory, np.int64), ARRAYS[dtypes.int64](pointer, size, None)


def number(name: str) -> int:
    """The number of an operation in notes."""
    return OPERATIONS.index(name)


def _at_once() -> bool:
    """Whether every launch is waited for."""
    return SIMULATED or gpu.BLOCKING


def after_launch() -> None:
    """Raise at once where every launch is waited for."""
    if _at_once():
        raise_pending()


def raise_pending() -> None:
    """Raise an IndexError if a kernel that has finished found a bad index.

    The caller has waited for the kernels that it wants to hear of, on this GPU.
    """
    notes = vars(gpu.current.gpu).get("notes")  # None as long as nobody needed it
    if notes is None or not notes.on_host[::WORDS].any():
        return
    seen = notes.on_host
    operation = int(seen[::WORDS].argmax())
    _, index, size, dim = map(int, seen[operation * WORDS : (operation + 1) * WORDS])
    seen.fill(0)
    name = OPERATIONS[operation]
    error: Exception = index_error(name, index, dim, size)
    if name == "binary_cross_entropy":
        error = not_probabilities()
    raise error if _at_once() else type(error)(f"{error}{EARLIER}")


gpu.after_waiting.append(raise_pending)
