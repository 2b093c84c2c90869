"""Hopper's copy engine: one thread orders a box of an array, and all others go on.

With this file a kernel can fill a ring of tiles in shared memory by one thread, with
those that multiply waiting for nothing but copies (as `matmul/warpgroup.py` does):

    thread 0:   prepare(shared, full, 1); prepare(shared, empty, warps); ready()
    all:        cuda.syncthreads()
    producer:   wait(shared, empty, phase ^ 1); expect(shared, full, nbytes)
                copy(shared, at, tensor_map, full, x0, x1, x2, x3)
    consumers:  wait(shared, full, phase); ...; release(shared, empty, 0)

A barrier in shared memory (`mbarrier`) counts arrivals and bytes: its phase, 0 at
first, changes when all that it expects have come. `wait` for a phase returns when that
one is over; for phase 1 of a new barrier, at once. The engine lays 128-byte lines down
as the tensor cores want them (`Copy.swizzle`), float32 rounded to TF32, and zeros for
what is outside.

Source: "PTX ISA", on mbarrier and cp.async.bulk.tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numba import cuda

from cuda_ops.block import llvm
from cuda_ops.block.copies import line_of, swizzled
from cuda_ops.block.llvm import written
from cuda_ops.block.mma import round_tf32
from cuda_ops.block.tiles import VECTOR_BYTES, inlined
from cuda_ops.runtime.tensor_maps import TENSOR_MAP
from cuda_ops.simulator import SIMULATED
from cuda_ops.simulator.block import current_thread

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types

# Bytes of shared memory that a barrier takes.
BARRIER = 8


class Barrier:
    """A barrier of the simulator's."""

    def __init__(self, count: int) -> None:
        self.count = self.missing = count
        self.nbytes = self.phase = 0
        self.waiting: list[Any] = []

    def come(self, arrivals: int, nbytes: int) -> None:
        """Arrivals, and bytes that are expected, or below 0, that are there."""
        self.missing -= arrivals
        self.nbytes += nbytes
        if self.missing == self.nbytes == 0:
            self.phase, self.missing = 1 - self.phase, self.count
            current_thread()._manager._wake(self.waiting)


def _barriers() -> dict[Any, Any]:
    """Those of the calling thread's block, among its warps: all have who waits."""
    known: dict[Any, Any] = current_thread()._manager.warps
    return known


def _emulated_prepare(shared, at, count):
    _barriers()["barrier", at] = Barrier(count)


def _emulated_expect(shared, at, nbytes):
    _barriers()["barrier", at].come(1, nbytes)


def _emulated_release(shared, at, _):
    if cuda.laneid == 0:
        _barriers()["barrier", at].come(1, 0)


def _emulated_wait(shared, at, phase):
    barrier = _barriers()["barrier", at]
    while barrier.phase == phase:
        barrier.waiting.append(current_thread())
        current_thread()._manager._give_turn()


def _on_barrier(text: str, emulated: Callable) -> Callable:
    """fn(shared, at, number): lines of PTX on the barrier at shared[at]."""
    if SIMULATED:
        return inlined(emulated)

    @written(lambda shared, *_: types.void(shared, types.int64, types.int64))
    def code(builder: Any, shared: Any, at: Any, number: Any) -> None:
        args = [llvm.shared_address(builder, builder.gep(shared, [at]))]
        args.append(builder.trunc(number, ir.IntType(32)))
        llvm.assembly(builder, text, ir.VoidType(), "r,r,~{memory}", args)

    return code


# A new barrier, for so many arrivals.
prepare = _on_barrier("mbarrier.init.shared::cta.b64 [$0], $1;", _emulated_prepare)
# Arrive, and let the barrier wait for so many bytes.
expect = _on_barrier(
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", _emulated_expect
)
# The warp arrives: its lane of this number does.
release = _on_barrier(
    "{ .reg .pred p; .reg .b32 lane; mov.u32 lane, %laneid; "
    "setp.eq.u32 p, lane, $1; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }",
    _emulated_release,
)
# Until this phase is over.
wait = _on_barrier(
    "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
    "@p bra done; bra again; done: }",
    _emulated_wait,
)
# Show the engine the barriers that this thread has prepared.
ready = line_of("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;")


def registers(count: int) -> Callable:
    """have(): let the threads of this warpgroup have so many registers; 0: no others.

    A block of three is launched with 168 a thread; what one gives back, others get. It
    waits for them: all together must have been launched with as many.
    """
    if not count:
        return line_of("")
    way = "inc" if count > 128 else "dec"
    return line_of(f"setmaxnreg.{way}.sync.aligned.u32 {count};")


def _emulated_copy(shared, at, source, barrier, *first):
    line, *lines = source.box
    size = source.array.itemsize
    for number, steps in enumerate(product(*map(range, reversed(lines)))):
        values, x = np.zeros(line, source.array.dtype), first[0]
        outer = [i + j for i, j in zip(first[1:], reversed(steps))]
        if all(i < n for i, n in zip(outer, source.shape[1:])):
            start = source.at + x + sum(i * s for i, s in zip(outer, source.strides))
            found = np.asarray(source.array)[start : start + source.shape[0] - x]
            values[: len(found)] = found[:line]
        values = round_tf32(values) if size == 4 else values
        to = swizzled(number, np.arange(line), line, VECTOR_BYTES // size)
        np.asarray(shared)[at + number * line + to] = values
    _barriers()["barrier", barrier].come(0, -size * int(np.prod(source.box)))


def _make_copy() -> Callable:
    """copy(shared, at, source, barrier, x0, x1, x2, x3): a box from these indices on.

    The map `source` says how large it is; the barrier at shared[barrier] gets its
    bytes. `at` is a multiple of 1,024 bytes.
    """
    if SIMULATED:
        return inlined(_emulated_copy)
    text = (
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[$0], [$2, {$3, $4, $5, $6}], [$1];"
    )

    @written(
        lambda shared, at, source, barrier, x0, x1, x2, x3: types.void(
            shared, types.int64, TENSOR_MAP, *[types.int64] * 5
        )
    )
    def copy(
        builder: Any, shared: Any, at: Any, source: Any, barrier: Any, x0: Any, x1: Any,
        x2: Any, x3: Any,
    ) -> None:  # fmt: skip
        ends = [builder.gep(shared, [x]) for x in (at, barrier)]
        args = [llvm.shared_address(builder, end) for end in ends]
        args.append(builder.ptrtoint(source, ir.IntType(64)))
        args += [builder.trunc(x, ir.IntType(32)) for x in (x0, x1, x2, x3)]
        llvm.assembly(builder, text, ir.VoidType(), "r,r,l,r,r,r,r,~{memory}", args)

    return copy


copy = _make_copy()
