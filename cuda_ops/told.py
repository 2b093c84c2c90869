"""What a step of writing begins and ends with.

With this file a step looks up its tokens and places, and counts them, in one kernel
(`begin`), and replays of it can follow each other although each reads what the one
before chose (`Told`). The host starts them one behind the other, and learns the tokens
from memory of its own that the GPU writes to. A copy between two graphs would be a
command of its own, for another unit of the GPU: some ten microseconds in which no
kernel runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.block.intrinsics import load, store, wait_for_previous
from cuda_ops.block.rows import barrier
from cuda_ops.index_errors import after_launch, bad_index, notes
from cuda_ops.memory import contiguous, empty, split
from cuda_ops.runtime import pinned
from cuda_ops.runtime.arrays import ARRAYS
from cuda_ops.runtime.launch import SIMULATED, TINY, ceil_div, kernel
from minitorch.dtypes import bool_, int64
from minitorch.tensor_data import TensorData

THREADS = 64
BEGIN = 64 if TINY else 512
_BEGIN = "int64[] T[] T[] int64[] int64[] int64[] bool[] T[] int64[] 5*int64"


@kernel(examples=[_BEGIN.replace("T", k) for k in ("float32", "bfloat16")],
        threads=BEGIN, overlaps=True)  # fmt: skip
def begin_step(ids, tokens, places, padding, slot, writing, mask, out, notes, sizes):
    """x = tokens[id] + places[place], and a mask of the slots that are seen.

    # ids [B], tokens [V, C], places [P, C], padding [B] or [0], slot, writing [1]
    # -> mask [B or 1, S], out [B, C]

        for b:  out[b] = tokens[ids[b]] + places[slot - padding[b]]
                for s:  mask[b, s] = padding[b] <= s <= slot
        writing = slot;  slot += 1

    One block, for few texts: all threads read the slot before one of them moves it on.
    """
    B, V, P, C, S = sizes
    wait_for_previous()
    at = slot[0]
    barrier()
    if cuda.threadIdx.x == 0:
        writing[0], slot[0] = at, at + 1
    for e in range(cuda.threadIdx.x, B * C, BEGIN):
        b, c = split(e, C)
        place = max(at - padding[b], 0) if padding.size > 0 else at
        if ids[b] < 0 or ids[b] >= V:
            bad_index(notes, 2, ids[b], V, 0)
        elif place < 0 or place >= P:
            bad_index(notes, 2, place, P, 0)
        else:
            total = load(tokens, ids[b] * C + c) + load(places, place * C + c)
            store(out, e, total)
    for e in range(cuda.threadIdx.x, mask.size, BEGIN):
        b, s = split(e, S)
        mask[e] = s <= at and (padding.size == 0 or s >= padding[b])


def begin(
    ids: TensorData, tokens: TensorData, places: TensorData, slot: TensorData, S: int,
    padding: TensorData | None,
) -> tuple[TensorData, TensorData, TensorData]:  # fmt: skip
    """ids [B, 1], tables [V, C] and [P, C], slot [1] and padding [B] of a cache of S
    slots -> x [B, 1, C], mask [B or 1, 1, 1, S], and slot [1], which moves on."""
    (B, _), (V, C), P = ids.shape, tokens.shape, places.shape[0]
    out, writing = empty((B, 1, C), tokens.dtype), empty((1,), int64)
    mask = empty((1 if padding is None else B, 1, 1, S), bool_)
    given = (contiguous(a).flat() for a in (ids, tokens, places))
    begin_step[1, BEGIN](
        *given, ids.flat()[:0] if padding is None else contiguous(padding).flat(),
        slot.flat(), writing.flat(), mask.flat(), out.flat(), notes(), (B, V, P, C, S),
    )  # fmt: skip
    after_launch()
    return out, mask, writing


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
