"""Convolution kernels that multiply tiles: one thread block, one tile of the result.

With this file one can make the kernels of a convolution and of its gradient for the
input (`conv_template`) and for the weight (`weight_tiles_template`), for a type and a
cut of the work (`Cut`). `conv.py` chooses the cuts and launches them; `plan.py` says
which elements meet.

Unfolding an image (im2col) and multiplying matrices writes every pixel KH * KW times.
Here the unfolded matrix exists in shared memory only, a tile at a time: each thread
knows its pixel's place, and the table says how far from there the next element lies.

Source of the idea: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning",
2014, section 3; the tiles are those of `matmul_vectorized`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba import cuda, float32, float64, int32, int64, uint32

from cuda_ops.block import tiles
from cuda_ops.block.copies import address_of, copy_async, copy_now, fences
from cuda_ops.block.intrinsics import fresh, load4
from cuda_ops.conv.plan import FAR, HEADER
from cuda_ops.runtime.device import compute_capability
from cuda_ops.runtime.launch import SIMULATED, Kernel
from minitorch.dtypes import DType

NUMBERS = {"float32": float32, "float64": float64}
SIZES = {"float32": 4, "float64": 8}
LOW = 0xFFFFFFFF
# A place that no reach brings back into the image.
OUTSIDE = -(1 << 30)
# From one element's address to the next.
UNITS = {"float32": 1, "float64": 1} if SIMULATED else SIZES
# Neighbouring pixels that a weight's gradient copies at a time.
LINE = 8


Filler = tuple[Callable, Callable, int]  # begin, fill, elements that a copy moves


class Cut(NamedTuple):
    """How a kernel cuts its product into blocks and threads.

    A block makes `outs` channels of `cols` positions (of a weight's gradient: columns),
    `depth` steps of k at a time; a thread makes thread_outs x thread_cols of these.

    Attributes:
        stages: tiles in shared memory; all but one are on their way.
        blocks: blocks that shall fit on a multiprocessor, which limits registers.
    """

    outs: int
    cols: int
    thread_outs: int
    thread_cols: int
    depth: int
    stages: int
    blocks: int = 1

    @property
    def threads(self) -> int:
        return self.outs // self.thread_outs * (self.cols // self.thread_cols)

    def tile(self, vector: int, pad: int = 0) -> tiles.Tile:
        """What a thread multiplies; `vector` numbers are 16 bytes.

        A thread's groups of outputs are as far apart as the block is wide, so that
        neighbouring threads read neighbouring groups.
        """
        lines, across = self.thread_outs // vector, self.thread_cols // vector
        return tiles.Tile(
            tiles.Side(self.thread_outs, self.outs // lines, self.outs + vector, False),
            tiles.Side(self.thread_cols, self.cols // across, self.cols + pad, False),
            self.depth,
        )


# ------------------------------------------------------------------ device functions


@tiles.inlined
def divide(n, factor, shift):
    """n // d for the `magic` numbers of d."""
    return ((int64(n) & LOW) * (int64(factor) & LOW)) >> int64(shift)


def _inside(i, size):
    """0 <= i < size, in one comparison: negative numbers become large ones."""
    return uint32(i) < uint32(size)


def _inside_simulated(i, size):
    return 0 <= i < size


inside = tiles.inlined(_inside_simulated if SIMULATED else _inside)


@tiles.inlined
def position(plan, at, m):
    """Position m as (image, row, column), for the phase whose header is at `at`."""
    image = divide(m, plan[at + 4], plan[at + 5])
    rest = m - image * plan[at + 2]
    y = divide(rest, plan[at + 6], plan[at + 7])
    return image, y, rest - y * plan[at + 3]


@cache
def locator(cut: Cut) -> Callable:
    """whereabouts(x, y, z, tiles): a block's group, first channel, first position and
    the header of its phase, if there are `tiles` of channels."""
    outs, cols = cut.outs, cut.cols

    def whereabouts(x, y, z, out_tiles):
        across = int64(uint32(x) // uint32(out_tiles))
        down = int64(x) - across * out_tiles
        return int64(y), down * outs, across * cols, int64(z) * HEADER

    return tiles.inlined(whereabouts)


@cache
def placer(cut: Cut, vector: int) -> Callable:
    """place() -> the first channel and first column of a thread in its block's tile.

    A warp covers 4 groups of channels times 8 of columns. Lanes are paired, one below
    the other: 8 lanes load 16 bytes each at a time, and need no more than 2 groups of
    channels and 4 of columns.
    """
    lines, across = cut.outs // cut.thread_outs, cut.cols // cut.thread_cols
    lane_cols = min(8, across)
    lane_rows = min(lines, 32 // lane_cols)
    pairs = 2 if lane_rows % 2 == 0 else 1
    group, wide = lane_cols * lane_rows, across // lane_cols

    def place(thread):
        warp, lane = divmod(thread, group)
        line, rest = divmod(lane, lane_cols * pairs)
        row = warp // wide * lane_rows + line * pairs + rest % pairs
        return row * vector, (warp % wide * lane_cols + rest // pairs) * vector

    return tiles.inlined(place)


def mover(elements: int, asynchronous: bool) -> Callable:
    """move(shared, at, source, address, inside): copy, or write zeros if not inside."""
    return (copy_async if asynchronous else copy_now)(elements, True)


# ------------------------------------------------ forward, and the input's gradient


def table_filler(name: str, cut: Cut, asynchronous: bool) -> Filler:
    """`begin` and `fill` for a weight read in place, with a table entry for each k."""
    vector = 16 // SIZES[name]
    threads, depth, cols = cut.threads, cut.depth, cut.cols
    pitch, weights_at = cut.outs + vector, cut.depth * cut.cols
    step, unit = threads // cols, UNITS[name]
    rows, out_stride = depth // step, threads // depth
    copies = cut.outs // out_stride
    move = mover(1, asynchronous)

    def begin(first, group, weight, plan, head, sizes, layout):
        """A thread's distance from its pixel, its channel, and where that starts."""
        outs = first + int64(cuda.threadIdx.x) // depth
        at = group * layout[2] + outs * layout[3]
        return 0, outs, address_of(weight, at)

    def fill(shared, at, source, weight, plan, row, here, mine, sizes, layout, k):
        t = int64(cuda.threadIdx.x)
        base, y, x = here
        outs, weight_at = mine
        line = t // cols
        entry = row + k * depth + line
        for r in range(rows):
            off, down, right, _ = load4(plan, 4 * (entry + r * step))
            ok = inside(int32(y + down), sizes[1]) & inside(int32(x + right), sizes[2])
            to = at + (line + r * step) * cols + t % cols
            move(shared, to, source, base + int64(off) * unit, ok)
        _, down, _, off = load4(plan, 4 * (row + k * depth + t % depth))
        to = at + weights_at + t % depth * pitch + t // depth
        address = weight_at + int64(off) * unit
        for i in range(copies):
            there = (down < FAR) & (outs + i * out_stride < layout[1])
            move(shared, to + i * out_stride, weight, address, there)
            address += out_stride * layout[3] * unit

    return tiles.inlined(begin), tiles.inlined(fill), 1


def packed_filler(name: str, cut: Cut, asynchronous: bool, wide: bool) -> Filler:
    """`begin` and `fill` for a packed weight, with one entry for `depth` channels.

    With `wide`, 16 bytes of neighbouring pixels are copied at a time: for kernels of
    one tap, a stride of 1, no padding, and planes of a multiple of 16 bytes.
    """
    vector = 16 // SIZES[name]
    elements, unit = vector if wide else 1, UNITS[name]
    threads, depth, cols = cut.threads, cut.depth, cut.cols
    pitch, weights_at = cut.outs + vector, cut.depth * cut.cols
    lanes, vectors = cols // elements, cut.outs // vector
    step = max(1, threads // lanes)
    rows, weight_step = depth // step, max(1, threads // vectors)
    copies = max(1, depth // weight_step)
    move = mover(elements, asynchronous)
    move_wide = mover(vector, asynchronous)

    def begin(first, group, weight, plan, head, sizes, layout):
        """A thread's distance from its pixel, its channel, its place in the weight."""
        t = int64(cuda.threadIdx.x)
        outs = first + t % vectors * vector
        row = plan[head + 16] + t // vectors
        at = group * layout[2] + row * layout[3] + outs
        return t // lanes * sizes[3], outs, address_of(weight, at)

    def fill(shared, at, source, weight, plan, row, here, mine, sizes, layout, k):
        t = int64(cuda.threadIdx.x)
        base, y, x = here
        outs, weight_at = mine
        off, down, right, _ = load4(plan, 4 * (row + k))
        ok = inside(int32(y + down), sizes[1]) & inside(int32(x + right), sizes[2])
        to = at + t // lanes * cols + t % lanes * elements
        address, apart = base + int64(off) * unit, step * sizes[3] * unit
        for r in range(rows):
            move(shared, to + r * step * cols, source, address, ok)
            address += apart
        to = at + weights_at + t // vectors * pitch + t % vectors * vector
        ok = outs < layout[3]
        if t // vectors < depth:
            address = weight_at + k * depth * layout[3] * unit
            for i in range(copies):
                move_wide(shared, to + i * weight_step * pitch, weight, address, ok)
                address += weight_step * layout[3] * unit

    return tiles.inlined(begin), tiles.inlined(fill), elements


TABLE, PACKED, WIDE = "table", "packed", "wide"


def writer(name: str, cut: Cut) -> tuple[Callable, Callable, int]:
    """`finish` for each group of a thread's positions: by way of shared memory, so that
    neighbouring threads write neighbouring pixels, and find their place only once."""
    vector = 16 // SIZES[name]
    tile, groups = cut.tile(vector), cut.thread_cols // vector
    part, threads = cut.cols // groups, cut.threads
    pitch, outs, step = part + vector, cut.outs, max(1, threads // part)
    lay = tiles.lay_aside(NUMBERS[name], tile, pitch)
    place, whereabouts = placer(cut, vector), locator(cut)

    def finish_group(g: int) -> Callable:
        lay_group = lay(g)

        def finish(shared, acc, out, bias, plan, sizes, layout, has_bias):
            t = fresh("tid.x")
            my_out, my_col = place(t)
            group, first, start, head = whereabouts(
                fresh("ctaid.x"), fresh("ctaid.y"), fresh("ctaid.z"), layout[4]
            )
            cuda.syncthreads()  # All are done with the tiles, or the group before.
            lay_group(shared, my_out * pitch + my_col, acc)
            cuda.syncthreads()
            m = start + g * part + t % part
            if m < sizes[0] * plan[head + 2]:
                image, y, x = position(plan, head, m)
                channel = group * layout[1] + first
                y = y * plan[head + 12] + plan[head + 14]
                x = x * plan[head + 13] + plan[head + 15]
                to = (image * layout[0] * layout[1] + channel) * layout[5]
                to += y * layout[6] + x
                for o in range(t // part, min(layout[1] - first, outs), step):
                    value = shared[o * pitch + t % part]
                    if has_bias:
                        value += bias[channel + o]
                    out[to + o * layout[5]] = value

        return tiles.inlined(finish)

    return finish_group(0), finish_group(groups - 1), groups


def conv_template(name: str, cut: Cut, mode: str, asynchronous: bool) -> Callable:
    """The Python function of `conv_tiles` for one way to cut and fill the tiles."""
    dtype, vector = NUMBERS[name], 16 // SIZES[name]
    zero, multiply, *_ = tiles.fma_tile(dtype, cut.tile(vector))
    if mode == TABLE:
        begin, fill, elements = table_filler(name, cut, asynchronous)
    else:
        begin, fill, elements = packed_filler(name, cut, asynchronous, mode == WIDE)
    close, wait, wait_all = fences(asynchronous, cut.stages - 2)
    finish, finish_last, parts = writer(name, cut)
    place, whereabouts = placer(cut, vector), locator(cut)
    cols, outs, stages, lanes = cut.cols, cut.outs, cut.stages, cut.cols // elements
    weights_at = cut.depth * cols
    stage = weights_at + cut.depth * (outs + vector)
    ring = stages * stage

    def conv_tiles(source, weight, bias, out, plan, sizes, layout, has_bias):
        """Multiply rows of pixels that exist in shared memory only with the weight.

        # source [N, G * K, H, W], weight of G * O channels -> out [N, G * O, OH, OW]
        # sizes: N, H, W, H * W, K * H * W
        # layout: G, O, weight steps of a group and of O, tiles of O, OH * OW, OW

            for m (image, y, x), o:   out[m, o] = bias[o] + sum over k of
                source[start of m + distance of k] * weight[k, o]

        A block makes `outs` channels of `cols` neighbouring positions; the grid's y is
        the group, z the phase. While the block multiplies one step of k, `cp.async`
        fetches the next ones, past the registers, into a ring of tiles; a thread always
        fetches for the same pixel, so the pixel's place is computed once. Each number
        fetched serves `outs` or `cols` products. 64 sums a thread stay in registers.

             k      shared tiles                registers
             |      [depth, cols]  pixels       8 x 8 of [outs, cols]
             v      [depth, outs]  weights
        """
        shared = cuda.shared.array(0, dtype)
        group, first, start, head = whereabouts(
            cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z, layout[4]
        )
        steps, row = plan[head], plan[head + 1]
        total = sizes[0] * plan[head + 2]
        if start >= total:
            return
        apart, first_out, weight_at = begin(
            first, group, weight, plan, head, sizes, layout
        )
        m = start + int64(cuda.threadIdx.x) % lanes * elements
        image, y, x = position(plan, head, m)
        # Positions behind the last lie so far outside that every tap is a zero.
        y = int32(y * plan[head + 8] + plan[head + 10]) if m < total else int32(OUTSIDE)
        x = int32(x * plan[head + 9] + plan[head + 11])
        base = (image * layout[0] + group) * sizes[4] + y * sizes[2] + x + apart
        here = (address_of(source, base), y, x)
        mine = (first_out, weight_at)
        for s in range(stages - 1):
            if s < steps:
                fill(
                    shared, s * stage, source, weight, plan, row, here, mine, sizes,
                    layout, s,
                )  # fmt: skip
            close()
        my_out, my_col = place(int64(cuda.threadIdx.x))
        # BEGIN TWIN a5.5
        # `slot` is the tile of this step, `free` the one of the step before.
        slot, free = 0, ring - stage
        acc = zero()
        for k in range(steps):
            wait()  # This thread's copies of step k are there,
            cuda.syncthreads()  # all others' too; and all are done with step k - 1.
            if k + stages - 1 < steps:
                fill(
                    shared, free, source, weight, plan, row, here, mine, sizes, layout,
                    k + stages - 1,
                )  # fmt: skip
            close()
            acc = multiply(acc, shared, slot + weights_at + my_out, slot + my_col)
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        # END TWIN a5.5
        wait_all()
        finish(shared, acc, out, bias, plan, sizes, layout, has_bias)
        if parts > 1:
            finish_last(shared, acc, out, bias, plan, sizes, layout, has_bias)

    return conv_tiles


# --------------------------------------------------------- the gradient for the weight


def weight_filler(name: str, cut: Cut, asynchronous: bool) -> tuple[Callable, ...]:
    """`begin` and `fill` for the gradient and the source, turned around on the way.

    Both lie in memory along the pixels, and are needed side by side for one pixel. A
    warp copies 8 pixels of 4 lines: with rows 4 numbers longer than a multiple of 32,
    its 32 numbers go to the 32 banks of shared memory.
    """
    vector, unit = 16 // SIZES[name], UNITS[name]
    depth, lines = cut.depth, cut.threads // LINE
    a_pitch, b_pitch = cut.outs + vector, cut.cols + vector
    b_at, a_copies, b_copies = depth * a_pitch, cut.outs // lines, cut.cols // lines
    move = mover(1, asynchronous)

    def begin(grad, source, group, first, first_col, sizes, layout):
        """A thread's addresses in image 0, its first table entry, and channels left."""
        line = int64(cuda.threadIdx.x) // LINE
        at = (group * layout[1] + first + line) * layout[2]
        return (
            address_of(grad, at),
            address_of(source, group * sizes[4]),
            HEADER // 4 + first_col + line,
            layout[1] - first - line,
        )

    def fill(shared, at, grad, source, plan, mine, sizes, layout, axes, k, last):
        thread = int64(cuda.threadIdx.x)
        lane, line = thread % LINE, thread // LINE
        grad_at, source_at, entry, left = mine
        for i in range(depth // LINE):
            m = k + lane + i * LINE
            image = divide(m, axes[2], axes[3])
            rest = m - image * axes[0]
            row = divide(rest, axes[4], axes[5])
            x = int32((rest - row * axes[1]) * axes[7] + axes[9])
            y = int32(row * axes[6] + axes[8] if m < last else OUTSIDE)
            image *= layout[0]
            address = grad_at + (image * layout[1] * layout[2] + rest) * unit
            to = at + (lane + i * LINE) * a_pitch + line
            for j in range(a_copies):
                there = (m < last) & (j * lines < left)
                move(shared, to + j * lines, grad, address, there)
                address += lines * layout[2] * unit
            address = source_at + (image * sizes[4] + y * sizes[2] + x) * unit
            to = at + b_at + (lane + i * LINE) * b_pitch + line
            for j in range(b_copies):
                off, down, right, _ = load4(plan, 4 * (entry + j * lines))
                ok = inside(int32(y + down), sizes[1])
                ok &= inside(int32(x + right), sizes[2])
                from_ = address + int64(off) * unit
                move(shared, to + j * lines, source, from_, ok)

    return tiles.inlined(begin), tiles.inlined(fill)


def weight_tiles_template(name: str, cut: Cut, asynchronous: bool) -> Callable:
    """The Python function of `conv_weight_tiles` for one way to cut the product."""
    dtype, vector = NUMBERS[name], 16 // SIZES[name]
    zero, multiply, store, *_ = tiles.fma_tile(dtype, cut.tile(vector, vector))
    begin, fill = weight_filler(name, cut, asynchronous)
    close, wait, _ = fences(asynchronous, cut.stages - 2)
    place, outs, cols, depth, stages = placer(cut, vector), *cut[:2], *cut[4:6]
    b_at = depth * (outs + vector)
    stage = b_at + depth * (cols + vector)
    ring = stages * stage

    def conv_weight_tiles(grad, source, out, plan, sizes, layout, axes):
        """Multiply gradients with the pixels that they came from, a part of all pixels.

        # grad [N, G * O, OH, OW], source [N, G * K, H, W]
        # -> out [parts, G * O, K * taps]
        # sizes: N, H, W, H * W, K * H * W
        # layout: G, O, OH * OW, K * taps, tiles of O, pixels of a part, all pixels
        # axes: OH * OW, OW, magic of both, then step, base of rows and columns

            for o, k:   out[part, o, k] = sum over m (image, y, x) of the part of
                grad[m, o] * source[start of m + distance of k]

        The sum is long and the result small, so the pixels are split into parts (the
        grid's z), which `sum_parts` adds up in a fixed order: no atomics, and the same
        result every time. A block makes `outs` channels of `cols` columns.
        """
        shared = cuda.shared.array(0, dtype)
        group, part = int64(cuda.blockIdx.y), int64(cuda.blockIdx.z)
        across = int64(uint32(cuda.blockIdx.x) // uint32(layout[4]))
        first_col = across * cols
        first = (int64(cuda.blockIdx.x) - across * layout[4]) * outs
        start = part * layout[5]
        last = min(start + layout[5], layout[6])
        mine = begin(grad, source, group, first, first_col, sizes, layout)
        for s in range(stages - 1):
            k = start + s * depth
            fill(
                shared, s * stage, grad, source, plan, mine, sizes, layout, axes, k,
                last,
            )  # fmt: skip
            close()
        row, col = place(int64(cuda.threadIdx.x))
        slot, free = 0, ring - stage
        acc = zero()
        for k0 in range(start, last, depth):
            wait()  # As in `conv_tiles`.
            cuda.syncthreads()
            k = k0 + (stages - 1) * depth
            if k < last:
                fill(
                    shared, free, grad, source, plan, mine, sizes, layout, axes, k, last
                )
            close()
            acc = multiply(acc, shared, slot + row, slot + b_at + col)
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        row, col = place(fresh("tid.x"))
        row, col = row + first, col + first_col
        at = ((part * layout[0] + group) * layout[1] + row) * layout[3] + col
        left = (layout[1] - row, layout[3] - col)
        store(out, at, layout[3], acc, left[0], left[1], layout[3] % vector == 0)

    return conv_weight_tiles


# ----------------------------------------------------------------- kernels for all cuts

# Positions that one launch can number.
MOST = 2**31
DOUBLE_CUTS = {Cut(64, 64, 4, 4, 8, 3, 2): 0.7, Cut(16, 64, 4, 4, 8, 3, 4): 0.4}
# For the simulator: 16 threads.
SMALL_CUTS = {Cut(16, 16, 4, 4, 8, 3): 1.0}


def cuts_for(dtype: DType, cuts: dict[Cut, float]) -> dict[Cut, float]:
    """`cuts`, which are for float32, or those of another type or of the simulator."""
    if SIMULATED:
        return SMALL_CUTS
    return cuts if dtype.itemsize == 4 else DOUBLE_CUTS


def asynchronous_here() -> bool:
    """Whether this chip copies to shared memory while others compute."""
    return compute_capability() >= (8, 0)


def tiles_kernel(
    fn: Any, title: str, key: tuple[str, Cut, bool], shared: int, example: str
) -> Kernel:
    """A kernel of this file; `key`: its type, its cut, and whether it is for sm_80."""
    name, cut, asynchronous = key
    shape = "x".join(map(str, cut))
    return Kernel(
        fn,
        f"{title}[{name} {shape}{'' if asynchronous else ' sm_75'}]",
        examples=[example],
        threads=cut.threads,
        # Without cp.async what is copied passes through registers.
        launch_bounds=(cut.threads, cut.blocks if asynchronous else cut.blocks // 2),
        shared=shared * SIZES[name],
        arch=(8, 0) if asynchronous else (7, 5),
    )
