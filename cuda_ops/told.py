"""Tokens that a graph hands on: to its next replay, and to the host, which looks later.

With this file replays of a step can follow each other although each reads what the one
before chose (`Told`). The host starts them one behind the other, and learns the tokens
from memory of its own that the GPU writes to. A copy between two graphs would be a
command of its own, for another unit of the GPU: some ten microseconds in which no
kernel runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import wait_for_previous
from cuda_ops.runtime import pinned
from cuda_ops.runtime.arrays import ARRAYS
from cuda_ops.runtime.launch import SIMULATED, ceil_div, kernel
from minitorch.dtypes import int64
from minitorch.tensor_data import TensorData

THREADS = 64


@kernel(examples=["int64[] int64[] int64[] int64[]"], threads=THREADS, overlaps=True)
def hand_on(tokens, slot, ids, told):
    """ids[b] = told[slot[0] - 1, b] = tokens[b]; a thread for each.

    # tokens, ids [B], slot [1], told [slots, B] in pinned memory of the host
    """
    b = cuda.grid(1)
    wait_for_previous()
    at = (slot[0] - 1) * tokens.size + b
    if b < tokens.size and at < told.size:
        ids[b] = tokens[b]
        told[at] = tokens[b]


class Told:
    """The tokens that followed those in a cache's slots.

    Attributes:
        on_host: int64 [slots, B]; a row can be read when the replay that wrote it is
            over.
    """

    def __init__(self, slots: int, batch: int) -> None:
        self.on_host = pinned.empty((slots, batch), np.dtype(np.int64))
        flat, size = self.on_host.reshape(-1), slots * batch
        self._on_device: Any = flat
        if not SIMULATED:  # both sides have the same addresses
            self._on_device = ARRAYS[int64](flat.ctypes.data, size, None, flat)

    def hand_on(self, tokens: TensorData, slot: TensorData, ids: TensorData) -> None:
        """Write tokens [B] to ids [B, 1], and to the row of the slot before `slot`."""
        to: Any = ids.flat()
        hand_on[ceil_div(to.size, THREADS), THREADS](
            tokens.flat(), slot.flat(), to, self._on_device
        )
