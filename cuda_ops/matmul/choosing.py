"""How to cut a matrix product for a GPU: an estimate of the time of each way.

With this file one can choose the tiles of blocks, and into how many chunks k is split,
so that all multiprocessors have work (`choose`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from cuda_ops.block.mma import F64
from cuda_ops.matmul.kernels import Config
from cuda_ops.matmul.warpgroup import GroupConfig
from cuda_ops.runtime.device import properties
from cuda_ops.runtime.launch import ceil_div

# What the estimate below is made of, in cycles of a multiprocessor.
# Fma a cycle.
FMA_RATE = 128.0
# Of TF32, as far as mma.sync gets.
TENSOR_RATE = 430.0
# Of halves, of which an instruction takes twice as many.
HALF_RATE = 860.0
# Of float16 before Ampere: predicted, as half of what its tensor cores have.
OLD_RATE = 256.0
# Of TF32, where both operands lie along k.
ALONG_RATE = 300.0
# Of halves by wgmma, and of TF32 half as many: the sums of `IDLE_GROUP_SUMS` tell what
# becomes of it.
GROUP_RATE = 2048.0
# Sums in registers for which the units are busy half of the time.
IDLE_SUMS = 8192
IDLE_GROUP_SUMS = 3600
# Of a step of k at least: a barrier, and the way to shared memory.
STEP_CYCLES = 400.0
# And where warps add up rows of its tile meanwhile, as far as nobody shares them.
SUMS_CYCLES = 2600.0
# Of a block: its first tile comes from far away.
START_CYCLES = 2500.0
# Of a second kernel.
PASS_CYCLES = 4000.0
# That it moves a cycle.
PASS_BYTES = 8.0
# That a copy moves a cycle.
COPY_BYTES = 16.0


class Cut(NamedTuple):
    """A choice: how a block cuts the product, and into how many chunks k is split."""

    config: Any
    splits: int


@lru_cache(maxsize=4096)
def choose(
    configs: tuple[Any, ...], M: int, N: int, K: int, batches: int, rate: float
) -> Cut:
    """The cut with the smallest estimated time."""
    sms = properties().multi_processor_count

    def few_tiles(config: Any, M: int, N: int) -> bool:
        """Whether a split would give work to multiprocessors that have none."""
        return ceil_div(M, config.rows) * ceil_div(N, config.cols) * batches < 2 * sms

    def splits_for(config: Any) -> set[int]:
        """Some, and of the ordinary units those that fill the chip once or twice."""
        some = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}
        if isinstance(config, Config):
            tiles = ceil_div(M, config.rows) * ceil_div(N, config.cols) * batches or 1
            room = sms * config.blocks
            some |= {n for n in (room // tiles, 2 * room // tiles) if 0 < n < 32}
        return some

    cuts = [
        Cut(config, splits)
        for config in configs
        for splits in sorted(splits_for(config))
        if splits == 1 or (K >= 2 * splits * config.depth and few_tiles(config, M, N))
    ]
    return min(cuts, key=lambda cut: estimate(cut, M, N, K, batches, rate))


def estimate(cut: Cut, M: int, N: int, K: int, batches: int, rate: float) -> float:
    """Cycles for one product, roughly.

    Blocks are dealt out evenly. Those that are on a multiprocessor together share its
    units, and keep them the busier the more sums they have in registers: these are
    the fma that do not wait for each other. A step takes its barrier at least.
    """
    c, sms = cut.config, properties().multi_processor_count
    matrix_tiles = ceil_div(M, c.rows) * ceil_div(N, c.cols) * batches
    load = ceil_div(matrix_tiles * cut.splits, sms)
    together = max(1, min(load, c.blocks))
    steps = ceil_div(ceil_div(K, cut.splits), c.depth)
    sums = together * c.rows * c.cols * getattr(c, "slices", 1)
    wide = getattr(c, "kind", "") == F64  # its instructions take longer, and wait less
    idle = IDLE_GROUP_SUMS if wide or isinstance(c, GroupConfig) else IDLE_SUMS
    busy = 0.95 * sums / (sums + idle)
    busy *= getattr(c, "pace", 1)
    sums = SUMS_CYCLES / ceil_div(N, c.cols) if getattr(c, "sums", False) else 0.0
    step = together * c.rows * c.cols * c.depth / rate / busy
    step = max(step, STEP_CYCLES, sums)
    cycles = ceil_div(load, together) * (steps * step + START_CYCLES)
    if cut.splits > 1:
        moved = (cut.splits + 1) * M * N * batches * 4
        cycles += PASS_CYCLES + moved / (sms * PASS_BYTES)
    return cycles
