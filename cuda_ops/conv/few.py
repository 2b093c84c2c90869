"""Gradients of convolutions of few channels: what tiles of a product would waste.

With this file `conv.py` brings a gradient back to an input of one to three channels
(`conv_few_input`) and, where it makes no more than eight, to its weight
(`conv_few_weight`), for strides and dilations of 1: the first layer of small networks.
As a matrix product, the first has 1 to 3 rows, and the second 8 with as few columns as
a kernel has taps, of the 16 rows and 64 columns that a tile computes.

Both kernels lay a part of an image, with the pixels around it, into shared memory,
and zeros where the image ends. A thread reads 8 neighbours of a line in two loads of 16
bytes, and they serve 20 multiplications for each row of 5 taps: the sums, the
neighbours and the taps stay in registers.

         4 outputs          8 neighbours, taps 0 to 4
        | . . . . |   <-   | a b c d e f g h |
                             0 1 2 3 4          first output
                               0 1 2 3 4        second
                                 0 1 2 3 4      third
                                   0 1 2 3 4    fourth

Source of the idea: register blocking of small convolutions, as in Podlozhnyuk, "Image
Convolution with CUDA", NVIDIA, 2007 (tiles with an apron in shared memory).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from numba import cuda, float32, int32, int64, uint32

from cuda_ops.block import tiles
from cuda_ops.block.copies import address_of, fences, unit_of
from cuda_ops.block.intrinsics import load, load4, store, store4
from cuda_ops.conv.tiles import inside, mover
from cuda_ops.runtime.device import properties
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel, ceil_div
from minitorch.dtypes import DType
from minitorch.dtypes import float32 as float32_type
from minitorch.tensor_data import Shape

Pair = tuple[int, int]

# In a row or column of the kernel.
MOST_TAPS = 7
# Of a number: these kernels are for float32 only.
BYTES = 4
# Numbers that a block has in shared memory at most.
ROOM = 46 * 1024 // BYTES
# Channels of the input for which these kernels are faster than tiles.
FEW = 3
# Of a plane, whose tiles the grid's y can number.
MOST_PIXELS = 1 << 23
# Channels of the output for which the weight's gradient is.
FEW_OUTS = 8
UNIT = unit_of(BYTES)
# Groups of 4 columns in a tile.
QUADS = (2,) if TINY else (8, 4, 2)
# Of a block of `conv_few_input` at most.
THREADS = 8 if TINY else 256
# Threads of a block of `conv_few_weight` at most.
TEAMS = 10 if TINY else 320
# Of its threads on a multiprocessor.
RESIDENT = 2 * TEAMS


def span_of(taps: int) -> int:
    """Neighbours that a thread reads for 4 outputs: whole groups of 16 bytes."""
    return ceil_div(taps + 3, 4) * 4


def is_few(
    dtype: DType, weight: Shape, stride: Pair, dilation: Pair, groups: int
) -> bool:
    """Whether the kernels of this file are for such a convolution.

    `conv_few_input` takes planes of up to `MOST_PIXELS`, and `conv_few_weight` makes up
    to `FEW_OUTS` channels.
    """
    return (
        dtype is float32_type
        and groups == 1
        and weight[1] <= FEW
        and max(weight[2:]) <= MOST_TAPS
        and stride == dilation == (1, 1)
    )


def choose_quads(width: int) -> int:
    """The groups of 4 columns in a tile; few columns are left over in the last one."""
    return min(QUADS, key=lambda quads: ceil_div(width, 4 * quads) * (quads + 1))


def filler(pitch: int, asynchronous: bool) -> Callable:
    """fill(shared, to, source, at, apart, planes, lines, place, size): copy a part of
    some planes, with zeros for what is outside of them.

        for s in range(planes), r in range(lines), c in range(pitch):
            shared[to + (s * lines + r) * pitch + c] =
                source[at + s * apart + (top + r) * wide + left + c]

    with (top, left) = place and (high, wide) = size. A thread finds its pixel's place
    once for all planes. `cp.async` lets all copies be under way at the same time.
    """
    move = mover(1, asynchronous)

    def fill(shared, to, source, at, apart, planes, lines, place, size):
        for e in range(int64(cuda.threadIdx.x), lines * pitch, int64(cuda.blockDim.x)):
            line = int64(uint32(e) // uint32(pitch))
            row, col = place[0] + line, place[1] + e - line * pitch
            there = inside(int32(row), size[0]) & inside(int32(col), size[1])
            address = address_of(source, at + row * size[1] + col)
            for s in range(planes):
                move(shared, to + s * lines * pitch + e, source, address, there)
                address += apart * UNIT

    return tiles.inlined(fill)


@cache
def reader(count: int) -> Callable:
    """read(to, first, shared, at): `count` numbers from shared memory to registers."""

    def read(to, first, shared, at):
        for v in range(0, count, 4):
            a, b, c, d = load4(shared, at + v)
            to[first + v], to[first + v + 1] = a, b
            to[first + v + 2], to[first + v + 3] = c, d

    return tiles.inlined(read)


@tiles.inlined
def write_four(out, at, acc, first, left, even):
    """Store four numbers; of an uneven line only those that are inside, `left`."""
    if even:
        store4(out, at, acc[first], acc[first + 1], acc[first + 2], acc[first + 3])
    else:
        for v in range(4):
            if v < left:
                store(out, at + v, acc[first + v])


# ---------------------------------------------------------------- gradient of the input


class InputCut(NamedTuple):
    """How `conv_few_input` cuts a plane: tiles of 4 * quads columns.

    Attributes:
        taps: rows and columns of the kernel.
        quads: groups of 4 columns in a tile.
        rows: of each group of columns, that a thread makes.
    """

    taps: Pair
    quads: int
    rows: int

    @property
    def pitch(self) -> int:
        """From one line in shared memory to the next."""
        return 4 * self.quads - 4 + span_of(self.taps[1])

    @property
    def weights(self) -> int:
        """Numbers in shared memory for one channel's taps."""
        return self.taps[0] * ceil_div(self.taps[1], 4) * 4


def input_template(cut: InputCut, asynchronous: bool) -> Callable:
    """The Python function of `conv_few_input` for one size of kernel."""
    (high, wide), quads, rows = cut
    pitch, span, area = cut.pitch, span_of(wide), high * wide
    wide4, weights, sums = ceil_div(wide, 4) * 4, cut.weights, 4 * rows
    fill, read_line, read_taps = (
        filler(pitch, asynchronous),
        reader(span),
        reader(wide4),
    )
    close, _, wait_all = fences(asynchronous, 0)

    def fill_taps(shared, to, weight, at, apart, planes):
        """Lay the taps of some channels into shared memory, turned around."""
        for e in range(int64(cuda.threadIdx.x), planes * area, int64(cuda.blockDim.x)):
            s, tap = divmod(uint32(e), uint32(area))
            i, j = divmod(tap, uint32(wide))
            value = load(weight, at + int64(s) * apart + area - 1 - int64(tap))
            shared[to + int64(s) * weights + int64(i) * wide4 + int64(j)] = value

    fill_taps = tiles.inlined(fill_taps)

    def conv_few_input(grad, weight, out, image, window, tile):
        """A thread makes 4 columns of some rows of one plane of the input's gradient.

        # grad [N, O, OH, OW], weight [O, C, KH, KW] -> out [N, C, H, W]
        # image: C, H, W; window: O, OH, OW, padding of rows and columns
        # tile: tiles side by side, lines of threads, channels in shared memory

            for n, c, h, w:  out = sum over o, i, j of
                grad[n, o, h + padding - i, w + padding - j] * weight[o, c, i, j]

        With the taps turned around this is a convolution of grad. The grid's x is the
        plane n * C + c, its y the tile. All channels of grad that fit are copied at
        once. A thread goes down the lines of a channel: for two rows and 5 x 5 taps, 2
        loads of a line's numbers and 4 of taps, 16 bytes each, feed 40 fma in 8 sums.
        Lanes that are neighbours read neighbours of the line, and the same taps, so no
        two of them wait for a bank of shared memory. The sums of each channel are added
        up in `total`: errors of long sums grow with their length.
        """
        C, H, W = image
        O, OH, OW, down, right = window
        across, lines, stage = tile
        n, c = divmod(int64(cuda.blockIdx.x), C)
        up, left = divmod(int64(cuda.blockIdx.y), across)
        thread = int64(cuda.threadIdx.x)
        line, quad = thread // quads * rows, thread % quads * 4
        tall = lines * rows
        place = (up * tall + down - high + 1, left * 4 * quads + right - wide + 1)
        shared = cuda.shared.array(0, float32)
        taps_at = stage * (tall + high - 1) * pitch
        total = cuda.local.array(sums, float32)
        acc = cuda.local.array(sums, float32)
        near = cuda.local.array(span, float32)
        tap = cuda.local.array(wide4, float32)
        for v in range(sums):
            total[v] = float32(0)
        for first in range(0, O, stage):
            count = min(stage, O - first)
            cuda.syncthreads()  # All are done with the channels before.
            at = (n * O + first) * OH * OW
            fill(
                shared, 0, grad, at, OH * OW, count, tall + high - 1, place, (OH, OW)
            )  # fmt: skip
            close()
            taps_from = (first * C + c) * area
            fill_taps(shared, taps_at, weight, taps_from, C * area, count)
            wait_all()
            cuda.syncthreads()
            at = line * pitch + quad
            for s in range(count):
                for v in range(sums):
                    acc[v] = float32(0)
                for y in range(high + rows - 1):
                    read_line(near, 0, shared, at + y * pitch)
                    for r in range(rows):
                        # Line y meets row r of the outputs through tap y - r.
                        if 0 <= y - r < high:
                            i = s * high + y - r
                            read_taps(tap, 0, shared, taps_at + i * wide4)
                            for j in range(wide):
                                for v in range(4):
                                    acc[4 * r + v] += near[v + j] * tap[j]
                for v in range(sums):
                    total[v] += acc[v]
                at += (tall + high - 1) * pitch
        row, col = up * tall + line, left * 4 * quads + quad
        for r in range(rows):
            to = (int64(cuda.blockIdx.x) * H + row + r) * W + col
            if row + r < H and col < W:
                write_four(out, to, total, 4 * r, W - col, W % 4 == 0)

    return conv_few_input


@cache
def input_kernel(cut: InputCut, asynchronous: bool) -> Kernel:
    """The kernel `conv_few_input` for one way to cut planes."""
    return Kernel(
        input_template(cut, asynchronous),
        _name("conv_few_input", cut, asynchronous),
        examples=["float32[] float32[] float32[] 3*int64 5*int64 3*int64"],
        threads=THREADS,
        shared=ROOM * BYTES,
        arch=(8, 0) if asynchronous else (7, 5),
    )


def _name(title: str, cut: InputCut | WeightCut, asynchronous: bool) -> str:
    (high, wide), *others = cut
    numbers = " ".join(map(str, others))
    return f"{title}[{high}x{wide} {numbers}{'' if asynchronous else ' sm_75'}]"


class InputPlan(NamedTuple):
    """How many tiles there are, and how large the blocks."""

    grid: Pair
    threads: int
    tile: tuple[int, int, int]
    shared: int


def plan_input(cut: InputCut, planes: int, channels: int, size: Pair) -> InputPlan:
    """Cut `planes` planes of `size` into tiles, for `channels` channels of grad."""
    height, width = size
    high = max(1, THREADS // cut.quads) * cut.rows
    tall = ceil_div(height, ceil_div(height, high))
    lines = ceil_div(tall, cut.rows)
    across, up = ceil_div(width, 4 * cut.quads), ceil_div(height, lines * cut.rows)
    one = (lines * cut.rows + cut.taps[0] - 1) * cut.pitch + cut.weights
    stages = ceil_div(channels, max(1, ROOM // one))
    stage = max(1, ceil_div(channels, max(1, stages)))
    return InputPlan(
        (planes, across * up),
        lines * cut.quads,
        (across, lines, stage),
        stage * one * BYTES,
    )


# --------------------------------------------------------------- gradient of the weight


class WeightCut(NamedTuple):
    """How `conv_few_weight` cuts images into tiles and the weight into threads' parts.

    Attributes:
        taps: rows and columns of the kernel.
        quads: groups of 4 columns in a tile.
        outs: channels of the gradient that a thread has sums for.
        tap_rows: rows of taps that it has sums for.
        groups: such groups of channels in a block.
    """

    taps: Pair
    quads: int
    outs: int
    tap_rows: int
    groups: int

    @property
    def pitch(self) -> int:
        """From one line of the image in shared memory to the next."""
        return 4 * self.quads - 4 + span_of(self.taps[1])

    @property
    def teams(self) -> int:
        """Teams of threads in a block: each has sums of its own."""
        return self.groups * (self.taps[0] // self.tap_rows)

    @property
    def sums(self) -> int:
        return self.outs * self.tap_rows * self.taps[1]


def weight_template(cut: WeightCut, asynchronous: bool) -> Callable:
    """The Python function of `conv_few_weight` for one size of kernel."""
    (high, wide), quads, outs, tap_rows, groups = cut
    pitch, span, channels, sums = cut.pitch, span_of(wide), outs * groups, cut.sums
    columns, teams, area = 4 * quads, cut.teams, high * wide
    row_sums, teams_down, ups = tap_rows * wide, high // tap_rows, 4 * outs
    fill, fill_grad = filler(pitch, asynchronous), filler(columns, asynchronous)
    read_line, read_grad = reader(span), reader(4)
    close, _, wait_all = fences(asynchronous, 0)

    def conv_few_weight(grad, x, out, image, window, tile):
        """A block adds up what some images give to the taps of some channels.

        # grad [N, O, OH, OW], x [N, C, H, W] -> out [parts, O, C, KH, KW]
        # image: C, H, W; window: O, OH, OW, padding of rows and columns
        # tile: tiles side by side, tiles of an image, all tiles, rows of one, lines

            for o, c, i, j:   out[part, o, c, i, j] = sum over n, p, q of the part of
                grad[n, o, p, q] * x[n, c, p + i - padding, q + j - padding]

        The grid's x is the part, y some channels of grad, z the channel of x. A team of
        threads walks over the tile: a thread loads 4 neighbours of each of its channels
        and 8 of x, and has 20 fma for each channel and row of 5 taps. Its sums stay in
        registers through all tiles of the part. Then the teams add up in shared memory,
        and `sum_parts` the parts: always in the same order, without atomics.

        The tile of grad ends with zeros where the image has no more outputs, and those
        are multiplied, too: an infinite pixel near the end makes NaN of other taps.
        """
        C, H, W = image
        O, OH, OW, down, right = window
        across, per_image, total, tall, lines = tile
        shared = cuda.shared.array(0, float32)
        grad_at = (tall + high - 1) * pitch
        thread, c = int64(cuda.threadIdx.x), int64(cuda.blockIdx.z)
        first = int64(cuda.blockIdx.y) * channels
        team, rest = divmod(thread, lines * quads)
        line, quad = rest // quads, rest % quads * 4
        group, my_row = team // teams_down, team % teams_down * tap_rows
        acc = cuda.local.array(sums, float32)
        near = cuda.local.array(span, float32)
        up = cuda.local.array(ups, float32)
        for v in range(sums):
            acc[v] = float32(0)
        unit = int64(cuda.blockIdx.x)
        while unit < total:  # a `range` would keep a counter in registers as well
            n, rest = divmod(unit, per_image)
            row, col = divmod(rest, across)
            row, col = row * tall, col * columns
            cuda.syncthreads()  # All are done with the tile before.
            fill(
                shared, 0, x, (n * C + c) * H * W, 0, 1, tall + high - 1,
                (row - down, col - right), (H, W),
            )  # fmt: skip
            fill_grad(
                shared, grad_at, grad, (n * O + first) * OH * OW, OH * OW,
                min(channels, O - first), tall, (row, col), (OH, OW),
            )  # fmt: skip
            close()
            wait_all()
            cuda.syncthreads()
            for r in range(line, tall, lines):
                at = grad_at + (group * outs * tall + r) * columns + quad
                for o in range(outs):
                    read_grad(up, 4 * o, shared, at + o * tall * columns)
                for i in range(tap_rows):
                    read_line(near, 0, shared, (r + my_row + i) * pitch + quad)
                    for o in range(outs):
                        for j in range(wide):
                            for v in range(4):
                                acc[o * row_sums + i * wide + j] += (
                                    up[4 * o + v] * near[v + j]
                                )
            unit += int64(cuda.gridDim.x)
        cuda.syncthreads()
        size, threads = lines * quads, int64(cuda.blockDim.x)
        # A sum's numbers lie one after the other, thread by thread; one place more
        # between two sums puts them into different banks.
        for v in range(sums):
            shared[v * (threads + 1) + thread] = acc[v]
        cuda.syncthreads()
        for e in range(thread, teams * sums, threads):
            team, v = e // sums, e % sums
            o = first + team // teams_down * outs + v // row_sums
            value = float32(0)
            for t in range(size):
                value += shared[v * (threads + 1) + team * size + t]
            if o < O:
                tap = team % teams_down * row_sums + v % row_sums
                out[((cuda.blockIdx.x * O + o) * C + c) * area + tap] = value

    return conv_few_weight


@cache
def weight_kernel(cut: WeightCut, asynchronous: bool) -> Kernel:
    """The kernel `conv_few_weight` for one way to cut images."""
    return Kernel(
        weight_template(cut, asynchronous),
        _name("conv_few_weight", cut, asynchronous),
        examples=["float32[] float32[] float32[] 3*int64 5*int64 5*int64"],
        threads=TEAMS,
        launch_bounds=(TEAMS, RESIDENT // TEAMS),
        shared=ROOM * BYTES,
        arch=(8, 0) if asynchronous else (7, 5),
    )


def choose_weight_cut(taps: Pair, outs: int, width: int) -> WeightCut:
    """The cut for a weight [outs, C, *taps], where grad has lines of `width`.

    Few taps leave room for the sums of all their rows; else each row gets a team. Eight
    channels are one block's.
    """
    all_rows = taps[0] * taps[1] <= 9
    mine = min(outs, 4 if all_rows else 2)
    groups = min(FEW_OUTS // mine, ceil_div(outs, mine))
    rows = taps[0] if all_rows else 1
    return WeightCut(taps, choose_quads(width), mine, rows, groups)


class WeightPlan(NamedTuple):
    """How many parts and tiles there are, and how large the blocks."""

    grid: tuple[int, int, int]
    threads: int
    tile: tuple[int, int, int, int, int]
    shared: int


def plan_weight(cut: WeightCut, weight: Shape, grad: Shape) -> WeightPlan:
    """Cut images into tiles, and these into parts: as many as run at the same time."""
    N, O, height, width = grad
    channels, line = cut.outs * cut.groups, 4 * cut.quads
    room = (ROOM - (cut.taps[0] - 1) * cut.pitch) // (cut.pitch + channels * line)
    tall = ceil_div(height, ceil_div(height, max(1, room)))
    team = min(TEAMS, ROOM // cut.sums - 1) // cut.teams
    lines = ceil_div(tall, ceil_div(tall, max(1, team // cut.quads)))
    threads = cut.teams * lines * cut.quads
    across = ceil_div(width, line)
    per_image = across * ceil_div(height, tall)
    others = ceil_div(O, channels) * weight[1]
    blocks = max(1, RESIDENT // threads) * properties().multi_processor_count
    wanted = ceil_div(blocks, others)
    parts = ceil_div(N * per_image, ceil_div(N * per_image, wanted))
    staged = (tall + cut.taps[0] - 1) * cut.pitch + channels * tall * line
    return WeightPlan(
        (parts, ceil_div(O, channels), weight[1]),
        threads,
        (across, per_image, N * per_image, tall, lines),
        max(staged, cut.sums * (threads + 1)) * BYTES,
    )


def _register() -> None:
    """Make the kernels that tests compile and `minitorch inspect` shows."""
    if not SIMULATED:
        for asynchronous in (True, False):
            input_kernel(InputCut((5, 5), 8, 2), asynchronous)
            weight_kernel(WeightCut((5, 5), 8, 2, 1, 3), asynchronous)
        input_kernel(InputCut((3, 3), 8, 2), True)
        weight_kernel(WeightCut((3, 3), 8, 4, 3, 2), True)


_register()
