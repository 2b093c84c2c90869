"""Matrix products by warpgroups, whose tensor cores fetch their factors themselves.

With this file one can get the kernel `matmul_warpgroup` for one way to cut a product
(`warpgroup`). What a group of 128 threads does in it is in `block/wgmma.py`; only
compute capability 9.0 has its instruction, and `matmul.py` takes `matmul_tensor_core`
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from numba import cuda, float32

from cuda_ops.block.copies import Copy, arrival
from cuda_ops.block.intrinsics import WARP, is_aligned, load4, store4, to_tf32
from cuda_ops.block.tiles import thread_index
from cuda_ops.block.wgmma import (
    ARCH,
    DEPTH,
    GROUP_BYTES,
    WARP_ROWS,
    WARPS,
    Group,
    wgmma_tile,
)
from cuda_ops.matmul.kernels import (
    EXAMPLE,
    Layout,
    pitch_of,
    ring_elements,
    ring_of,
    tile_storer,
)
from cuda_ops.memory import copy_into, empty
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel, ceil_div, kernel
from minitorch.tensor_data import TensorData

# -------------------------------------------------------------------------- the kernel


class GroupConfig(NamedTuple):
    """How `matmul_warpgroup` cuts a product into blocks and warpgroups.

    A block makes 64 `groups` x `smem_rows` outputs of a product, or with `turned` of
    the turned one, b.T @ a.T: the operand in shared memory has to lie along k, and that
    is a then, not b. `stages` and `blocks` are as in `kernels.Config`.
    """

    groups: int
    smem_rows: int
    stages: int
    turned: bool
    blocks: int = 1
    depth: int = DEPTH

    @property
    def reg_rows(self) -> int:
        """Rows of the block's tile, whose factors are in registers."""
        return self.groups * WARPS * WARP_ROWS

    @property
    def rows(self) -> int:
        return self.smem_rows if self.turned else self.reg_rows

    @property
    def cols(self) -> int:
        return self.reg_rows if self.turned else self.smem_rows

    @property
    def threads(self) -> int:
        return WARP * WARPS * self.groups

    def layouts(self, a_layout: Layout, b_layout: Layout) -> tuple[Layout, Layout]:
        """The same, but what stays in shared memory lies along k there."""
        in_smem = a_layout if self.turned else b_layout
        if not in_smem.k_fast:
            in_smem = Layout(1, True)
        return (in_smem, b_layout) if self.turned else (a_layout, in_smem)

    def copies(
        self, a_layout: Layout, b_layout: Layout, _: int = 4
    ) -> tuple[Copy, Copy]:
        """How the block's threads copy a tile of a and one of b."""
        in_smem, in_regs = (a_layout, b_layout) if self.turned else (b_layout, a_layout)
        # `ldmatrix` wants lines 16 bytes apart, modulo the banks; loads of words, 32.
        more = 4 if in_regs.k_fast else 8
        pitch = pitch_of(self.reg_rows, self.depth, in_regs, more)
        smem_copy = Copy(
            self.depth, self.smem_rows,
            pitch_of(self.smem_rows, self.depth, in_smem, 0), self.threads,
            in_smem.elements, True, in_smem.k_fast, swizzle=True,
        )  # fmt: skip
        reg_copy = Copy(
            self.depth, self.reg_rows, pitch, self.threads, in_regs.elements, True,
            in_regs.k_fast,
        )  # fmt: skip
        return (smem_copy, reg_copy) if self.turned else (reg_copy, smem_copy)

    def shared(self, a_layout: Layout, b_layout: Layout, size: int) -> int:
        """Bytes of shared memory for the ring of tiles."""
        return ring_elements(self, a_layout, b_layout) * size


def warpgroup_template(
    config: GroupConfig, a_layout: Layout, b_layout: Layout
) -> Callable:
    """The Python function of `matmul_warpgroup` for one way to cut the product."""
    c, depth, stages = config, config.depth, config.stages
    if stages < 3:
        raise ValueError(
            f"matmul_warpgroup: got {stages} stages; expected 3 or more, for tiles "
            f"that are multiplied, taken to registers, and on their way"
        )
    a_copy, b_copy = c.copies(a_layout, b_layout)
    start, load_a, load_b, close, _, _, a_size, stage, forward = ring_of(
        c, a_copy, b_copy, 4
    )
    in_regs = b_copy if c.turned else a_copy
    group = Group(c.smem_rows, depth, in_regs.k_fast, in_regs.pitch, c.turned)
    first, take, begin, finish, store = wgmma_tile(group)
    arrive = arrival(stages - 3)
    smem_at, reg_at = (0, a_size) if c.turned else (a_size, 0)
    if not SIMULATED and (4 * stage % GROUP_BYTES or 4 * smem_at % GROUP_BYTES):
        # What is swizzled for the hardware has to begin at such a multiple, as
        # dynamic shared memory does.
        raise ValueError(
            f"matmul_warpgroup: tiles of {c} lie across {GROUP_BYTES} bytes"
        )
    store_tile, ring = tile_storer(store, 4), stages * stage
    turned, apart = c.turned, WARP_ROWS * in_regs.strides[0]

    def matmul_warpgroup(a, a_at, a_strides, b, b_at, b_strides, out, sizes, bias):
        """Hopper's tensor cores: 131,072 multiplications an instruction, on their own.

        # a [B, M, K] @ b [B, K, N] + bias [N] or [0] -> out [parts, B, M, N], float32

            for a block of 256 x 128 outputs, for k0 in range(first, last, 32):
                acc[128 b, 256 a] += b's tile k0 (registers) x a's tile k0 (shared)
                tile k0 + 32 of b -> registers                      (meanwhile)
                tile k0 + 96 of a and b -> shared memory            (meanwhile)

            ring    | tile t-1 -> t+3 | tile t    | tile t+1    | t+2      |
                      being overwritten  multiplied  to registers  arriving

        The warps of `matmul_tensor_core` fetch both factors of each `mma.sync` into
        registers, and wait for its result. Here four warps have 64 x 32 factors of one
        operand, `wgmma.mma_async` fetches the other itself, 256 lines of 128 bytes, and
        the warps go on: to the next barrier, and to the next tile's factors. They wait
        at the end of a step, when all of that is done. Two groups of four warps share
        a block's 256 x 128 outputs, 128 sums a thread.

        The tensor cores want lines along k, and 16-byte vectors of line r in the order
        0 ^ r, 1 ^ r, ... 7 ^ r, so that the same vector of 8 lines meets all banks. If
        b does not lie along k, but a does, then the block makes a part of b.T @ a.T.

        What goes to registers is rounded to TF32 on the way. Of what is in shared
        memory the tensor cores ignore the last 13 bits, so `round_flat` rounds that
        beforehand, which takes a twentieth of the time of a product of 4096 rows. Sums
        are float32.

        Sums begin with the bias, which arrives while the first tiles do: added to what
        is stored, it would cost reading and writing that once more.

        Source: "PTX ISA", on wgmma, matrix descriptors and the asynchronous proxy.
        """
        shared = cuda.shared.array(0, float32)
        row, col, count, a_from, a_walk, b_from, b_walk = start(
            shared, a, a_at, a_strides, b, b_at, b_strides, sizes
        )
        rows, cols = sizes[0] - row, sizes[1] - col
        # BEGIN TWIN a5.5
        mine = thread_index() // WARP * apart + reg_at
        warp = thread_index() // WARP * WARP_ROWS if turned else 0
        # The bias is in one of the parts of a sum.
        acc = first(bias, col + warp, cols - warp if cuda.blockIdx.y == 0 else 0)
        slot, free = 0, ring - stage
        arrive()  # this thread's copies of tile 0
        cuda.syncthreads()  # and all others'
        factors = take(shared, mine)
        for t in range(count):
            acc = begin(acc, factors, shared, slot + smem_at)
            arrive()
            cuda.syncthreads()  # tile t + 1 is there; all are done with tile t - 1
            if t + stages - 1 < count:
                load_a(shared, free, a, a_from, a_walk, rows)
                load_b(shared, free + a_size, b, b_from, b_walk, cols)
                a_from += forward * a_strides[1]
                b_from += forward * b_strides[1]
            close()
            free = slot
            slot = slot + stage if slot + stage < ring else 0
            # The next tile's factors come while the product is under way.
            factors = take(shared, slot + mine)
            acc = finish(acc)
        # END TWIN a5.5
        if turned:
            col += thread_index() // WARP * WARP_ROWS
        else:
            row += thread_index() // WARP * WARP_ROWS
        store_tile(out, acc, row, col, sizes)

    return matmul_warpgroup


if TINY:
    GROUP_CONFIGS: tuple[GroupConfig, ...] = (
        GroupConfig(1, 16, 3, False),
        GroupConfig(1, 16, 3, True),
    )
else:
    GROUP_CONFIGS = (
        GroupConfig(2, 256, 4, False),  # 128 x 256
        GroupConfig(2, 128, 4, False),  # 128 x 128
        GroupConfig(2, 256, 4, True),  # 256 x 128
        GroupConfig(2, 128, 4, True),  # 128 x 128
    )


@cache
def warpgroup(config: GroupConfig, a_layout: Layout, b_layout: Layout) -> Kernel:
    """The kernel `matmul_warpgroup` for one way to cut."""
    fn = warpgroup_template(config, a_layout, b_layout)
    key = config, a_layout, b_layout
    return Kernel(
        fn,
        name=MAIN.get(key) or f"{fn.__name__}{(*config, a_layout, b_layout)}",
        examples=(f"{EXAMPLE} float32[]",) * (key in MAIN),
        threads=config.threads,
        max_registers=min(65536 // (config.threads * config.blocks) // 8 * 8, 255),
        shared=config.shared(a_layout, b_layout, 4),
        arch=ARCH,
        only_arch=True,
    )


_FIRST = next(i for i, config in enumerate(GROUP_CONFIGS) if config.turned)
MAIN = {
    (GROUP_CONFIGS[_FIRST], Layout(4, True), Layout(4, False)): "matmul_warpgroup",
}
for _key in MAIN:
    warpgroup(*_key)


@kernel(examples=["float32[] float32[] bool"], arch=(8, 0))
def round_flat(x, out, aligned):
    """Round float32 numbers to TF32, to nearest: 10 bits after the point.

    # x [n] -> out [n]

        for i in parallel:  out[i] = tf32(x[i])

    Four numbers a thread, 16 bytes at once where `x` is aligned to that.
    """
    i = 4 * cuda.grid(1)
    if aligned and i + 3 < out.size:
        a, b, c, d = load4(x, i)
        store4(out, i, to_tf32(a), to_tf32(b), to_tf32(c), to_tf32(d))
    else:
        for j in range(i, min(i + 4, out.size)):
            out[j] = to_tf32(x[j])


def rounded_rows(a: TensorData) -> TensorData:
    """A copy of a [*, n, K] row by row, rounded to TF32.

    A dim that repeats one matrix (of stride 0) is copied once, and repeats the copy.
    """
    repeated = [i for i in range(a.dims - 2) if a.strides[i] == 0 and a.shape[i] > 1]
    if repeated:
        once = tuple(1 if i in repeated else n for i, n in enumerate(a.shape))
        copied = rounded_rows(TensorData(a.storage, once, a.strides, a.offset))
        steps = tuple(0 if i in repeated else s for i, s in enumerate(copied.strides))
        return TensorData(copied.storage, a.shape, steps, copied.offset)
    out = empty(a.shape, a.dtype)
    source, to = a, out.flat()
    if not a.is_contiguous():
        copy_into(out, a)
        source = out
    aligned = is_aligned(source.flat(), to)
    round_flat[ceil_div(out.size, 4 * 256), 256](source.flat(), to, aligned)
    return out
