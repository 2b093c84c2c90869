"""Blocks that run together and read each other's shared memory, on Hopper.

With this file the blocks of a column of the grid, up to `MOST`, meet (`meet`) and read
what one of them has in shared memory (`remote`), in a kernel that says `clusters`. To
leave it in global memory would take a fence, an atomic and a load, each of which is the
way to the second-level cache and back. The simulator runs one block after the other, so
that there are none in it.

Source: "PTX ISA", on barrier.cluster and mapa.
"""

from __future__ import annotations

from typing import Any

from cuda_ops.block import llvm
from cuda_ops.block.copies import line_of
from cuda_ops.block.llvm import written
from cuda_ops.simulator import SIMULATED

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types

# Blocks of a cluster that every chip that has clusters can run.
MOST = 8

# All threads of all blocks come here, and see what the others wrote before.
meet = line_of("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;")


def _make_remote() -> Any:
    if SIMULATED:
        return None

    @written(lambda shared, *_: types.float32(shared, types.int64, types.int64))
    def remote(builder: Any, shared: Any, at: Any, rank: Any) -> Any:
        """shared[at], a float32, of the block of this number in the cluster."""
        args = [llvm.shared_address(builder, builder.gep(shared, [at]))]
        args.append(builder.trunc(rank, ir.IntType(32)))
        line = (
            "{ .reg .b32 there; mapa.shared::cluster.u32 there, $1, $2; "
            "ld.shared::cluster.f32 $0, [there]; }"
        )
        return llvm.assembly(builder, line, ir.FloatType(), "=f,r,r,~{memory}", args)

    return remote


remote = _make_remote()
