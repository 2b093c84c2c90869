"""Two-dimensional convolution and its two gradients, without unfolding the image.

With this file `conv.py` can convolve images (`correlate`), also with a weight that is
turned around, which is the gradient for the image, and take the gradient for the weight
(`weight_sums`).

The idea is that of `fast_ops/conv.py`, which explains it and computes the plan: lay one
image out with its padding, in rows of P numbers. Then the neighbour at (kh, kw) of all
output positions lies at one fixed distance, and a convolution is a matrix product

    out [O, positions] = weight [O, taps] times rows [taps, positions]

whose rows are windows onto the one flat image; `offsets` tells where each begins.
Nothing is copied KH * KW times. The last positions of each row run over the edge, and
are left out at the end.

Some workers, no more than there are threads, have a chunk of memory each, and take the
next task until there is none left (`next_task`). What a task computes does not depend
on the worker.

A zero of the padding times inf is NaN, where there should be no product at all. So the
kernels say whether the weight, or the gradient for it, is finite (`not_finite`); where
it is not, the launcher has the result made once more, product by product.
"""

from std.atomic import Atomic
from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.numerics import isfinite

from bridge import Arguments, Buffer, Object, Table, done, integer
from lines import copy_block, fill, store_part
from parallel import Kernel, Team, next_task, parallel_for

comptime f32 = DType.float32
comptime f64 = DType.float64

comptime WIDE = simd_width_of[f32]() >= 16  # AVX-512: 32 registers of 16 float32
comptime ROWS = 8  # channels of a tile of `Correlate`, and lines of a packed panel
comptime VECTORS = 2 if WIDE else 1  # vectors in a row of such a tile
comptime DOT_ROWS = 4 if WIDE else 2  # channels of a tile of `WeightSums`
comptime DOT_TAPS = 6 if WIDE else 4  # taps of such a tile
comptime DOT_ROOM = 32 if WIDE else 8  # sums of such a tile, up to a power of 2
comptime FEW = 1 << 14  # packed weights that stay in the first-level cache


@always_inline
def not_finite(counter: Table):
    """Note down, behind the counter of tasks, that there is an inf or a NaN."""
    _ = Atomic[Int].fetch_add(counter.at(1).address().unsafe_bitcast[Int](), 1)


# -------------------------------------------------------------------- laying images out


struct Layout(TrivialRegisterPassable):
    """The sizes of a convolution, from `fast_ops.conv.Geometry`, and its tables."""

    var channels: Int  # of the source, in one group
    var groups: Int
    var height: Int  # of the source
    var width: Int
    var step_h: Int
    var step_w: Int
    var pad_h: Int
    var pad_w: Int
    var rows: Int  # of a laid out strip
    var columns: Int  # of a laid out strip: P
    var strip: Int  # output rows in a strip
    var count_h: Int  # output rows and columns
    var count_w: Int
    var sizes: Table  # the numbers above, and those that only `put_rows` needs
    var phases: Table  # [phases, 2]
    var phase_count: Int
    var offsets: Table  # [depth] into the strip
    var depth: Int  # taps of all channels
    var room: Int  # elements of a laid out strip, with slack for whole vectors

    def __init__(out self, a: Arguments, i: Int):
        """From the arguments i on: numbers, phases, offsets, three sizes."""
        var n = a.buffer[DType.int64](i)
        self.channels = Int(n[0])
        self.groups = Int(n[1])
        self.height = Int(n[2])
        self.width = Int(n[3])
        self.step_h = Int(n[4])
        self.step_w = Int(n[5])
        self.pad_h = Int(n[6])
        self.pad_w = Int(n[7])
        self.rows = Int(n[8])
        self.columns = Int(n[9])
        self.strip = Int(n[10])
        self.count_h = Int(n[11])
        self.count_w = Int(n[12])
        self.sizes = n
        self.phases = a.buffer[DType.int64](i + 1)
        self.offsets = a.buffer[DType.int64](i + 2)
        self.phase_count = a.integer(i + 3)
        self.depth = a.integer(i + 4)
        self.room = a.integer(i + 5)

    @always_inline
    def strips(self) -> Int:
        return ceildiv(self.count_h, self.strip)

    def lay_out[T: DType](self, source: Buffer[T], first: Int, strip: Buffer[T]):
        """Write the padded rows of a strip, split by phases.

        # source [channels, height, width] -> strip [channels, phases, rows, P]

            strip[c, f, i, j] = source[c, (first + i) * step_h + phase_h - pad_h,
                                          j * step_w + phase_w - pad_w]  or 0 outside
        """
        fill(strip, self.room, 0)
        for c in range(self.channels):
            var plane = source.at(c * self.height * self.width)
            for f in range(self.phase_count):
                var at = (c * self.phase_count + f) * self.rows * self.columns
                self.lay_plane(plane, first, f, strip.at(at))

    @always_inline
    def lay_plane[
        T: DType
    ](self, plane: Buffer[T], first: Int, phase: Int, z: Buffer[T]):
        """The rows and columns of one phase that are not in the padding."""
        var up = self.pad_h - Int(self.phases[2 * phase]) - first * self.step_h
        var top = min(max(ceildiv(up, self.step_h), 0), self.rows)
        var low = min((self.height - 1 + up) // self.step_h + 1, self.rows)
        var left = self.pad_w - Int(self.phases[2 * phase + 1])
        var begin = min(max(ceildiv(left, self.step_w), 0), self.columns)
        var end = min((self.width - 1 + left) // self.step_w + 1, self.columns)
        if top >= low or begin >= end:
            return
        var x = plane.at((top * self.step_h - up) * self.width)
        var x_step = self.step_h * self.width
        var to = z.at(top * self.columns)
        if self.step_w == 1:
            copy_block(
                x.at(begin - left), x_step, to.at(begin), self.columns, low - top,
                end - begin, 0,
            )
            return
        for i in range(low - top):
            for j in range(begin, end):
                to[i * self.columns + j] = x[i * x_step + j * self.step_w - left]

    def put_rows[
        T: DType
    ](self, made: Buffer[T], shift: Scalar[T], z: Buffer[T], first: Int, rows: Int):
        """Copy the right positions of one channel of a strip to their place.

        # made [strip, P], z: the output plane; `shift` is added
        """
        var wide = Int(self.sizes[14])
        var step_h = Int(self.sizes[15])
        var step_w = Int(self.sizes[16])
        var start = z.at((first * step_h + Int(self.sizes[17])) * wide)
        var to = start.at(Int(self.sizes[18]))
        var z_step = step_h * wide
        if step_w == 1:
            copy_block(made, self.columns, to, z_step, rows, self.count_w, shift)
            return
        for i in range(rows):
            for j in range(self.count_w):
                to[i * z_step + j * step_w] = made[i * self.columns + j] + shift


# -------------------------------------------------------------------------- convolution


@fieldwise_init
struct PackWeight[T: DType](Kernel):
    """Lay the weight out in the order in which the tiles read it; a task is a panel.

    # weight: G * M rows of `depth` taps -> packed [G, panels, depth, ROWS]

    A panel holds the taps of ROWS channels, one tap of all of them after the other;
    missing channels repeat the last one. Notes down what is not finite.
    """

    var weight: Buffer[Self.T]
    var taps: Table  # [depth] into the weight
    var packed: Buffer[Self.T]
    var counter: Table
    var group_step: Int  # in the weight
    var row_step: Int
    var depth: Int
    var made: Int  # channels of a group
    var panels: Int  # of a group

    def run(self, task: Int):
        var g = task // self.panels
        var m = (task - g * self.panels) * ROWS
        var z = self.packed.at(task * self.depth * ROWS)
        var finite = True
        for i in range(ROWS):
            var row = min(m + i, self.made - 1)
            var x = self.weight.at(g * self.group_step + row * self.row_step)
            for k in range(self.depth):
                var value = x[Int(self.taps[k])]
                z[k * ROWS + i] = value
                finite &= isfinite(value)
        if not finite:
            not_finite(self.counter)


@fieldwise_init
struct Correlate[T: DType](Kernel):
    """Convolve all images; used forward, and backward with the weight turned around.

    # source [N, G * C, H, W], packed weight -> z [N, G * M, OH, OW]

        for n, g, m, position:  z = bias[m] + sum over taps t of
                                weight[m, t] * strip[offsets[t] + position]

    A task is a strip of rows of one image and group. The strip, padded, and its outputs
    stay in the second-level cache. A tile is 8 channels by 2 vectors of positions, held
    in 16 registers: a tap costs two loads of positions, 8 of weights and 16
    multiply-adds. Against unfolding (im2col), KH * KW times less is written.
    """

    var layout: Layout
    var source: Buffer[Self.T]
    var packed: Buffer[Self.T]
    var bias: Buffer[Self.T]
    var z: Buffer[Self.T]
    var work: Buffer[Self.T]  # for each worker: results [M, strip, P], a strip
    var counter: Table
    var made: Int  # M
    var tasks: Int

    comptime w = simd_width_of[Self.T]()
    comptime wide = VECTORS * Self.w

    def run(self, worker: Int):
        var l = self.layout
        var room = l.strip * l.columns
        var results = self.work.at(worker * (self.made * room + l.room))
        var strip = results.at(self.made * room)
        var task = next_task(self.counter)
        while task < self.tasks:
            var image = task // l.strips()  # n * groups + g
            var first = (task - image * l.strips()) * l.strip
            var at = image * l.channels * l.height * l.width
            l.lay_out(self.source.at(at), first, strip)
            var rows = min(l.strip, l.count_h - first)
            self.tiles(image % l.groups, strip, results, rows * l.columns)
            self.put(image, results, first, rows)
            task = next_task(self.counter)

    @always_inline
    def tiles(
        self, group: Int, strip: Buffer[Self.T], results: Buffer[Self.T], count: Int
    ):
        """All channels of a group, at `count` positions."""
        var panels = ceildiv(self.made, ROWS)
        var across = ceildiv(count, Self.wide)
        var size = self.layout.depth * ROWS
        for tile in range(across * panels):
            # What is larger stays in the first-level cache while the other passes by.
            var by_column = panels * size < FEW
            var p = tile % panels if by_column else tile // across
            var j = (tile // panels if by_column else tile % across) * Self.wide
            var weight = self.packed.at((group * panels + p) * size)
            var rows = self.made - p * ROWS
            var z = results.at(p * ROWS * self.layout.strip * self.layout.columns + j)
            if rows > 6:
                self.tile[8](weight, strip.at(j), z, rows, count - j)
            elif rows > 4:
                self.tile[6](weight, strip.at(j), z, rows, count - j)
            elif rows > 2:
                self.tile[4](weight, strip.at(j), z, rows, count - j)
            else:
                self.tile[2](weight, strip.at(j), z, rows, count - j)

    @always_inline
    def tile[
        rows: Int
    ](
        self, weight: Buffer[Self.T], x: Buffer[Self.T], z: Buffer[Self.T],
        left_rows: Int, left_columns: Int,
    ):
        """`rows` channels by `wide` positions, of which so many are left to write."""
        comptime V = SIMD[Self.T, Self.w]
        var offsets = self.layout.offsets
        var sums = Array[V, rows * VECTORS](fill=V(0))
        for k in range(self.layout.depth):
            var right = x.at(Int(offsets[k]))
            comptime for r in range(rows):
                var left = V(weight[k * ROWS + r])
                comptime for v in range(VECTORS):
                    comptime at = r * VECTORS + v
                    sums[at] = right.load[Self.w](v * Self.w).fma(left, sums[at])
        var step = self.layout.strip * self.layout.columns
        comptime for r in range(rows):
            if r < left_rows:
                comptime for v in range(VECTORS):
                    comptime j = v * Self.w
                    if j < left_columns:
                        var sum = sums[r * VECTORS + v]
                        store_part(z.at(r * step), j, left_columns, sum)

    @always_inline
    def put(self, image: Int, results: Buffer[Self.T], first: Int, rows: Int):
        """Copy all channels of a strip to their places, and add the bias."""
        var l = self.layout
        var plane = Int(l.sizes[13]) * Int(l.sizes[14])
        for m in range(self.made):
            var z = self.z.at((image * self.made + m) * plane)
            var shift = self.bias[image % l.groups * self.made + m]
            l.put_rows(results.at(m * l.strip * l.columns), shift, z, first, rows)


def run_correlate[T: DType](team: Object, a: Arguments):
    var layout = Layout(a, 4)
    var made = a.integer(13)
    var workers = a.integer(17)
    var counter = a.buffer[DType.int64](16)
    var panels = ceildiv(made, ROWS)
    var pack = PackWeight[T](
        a.buffer[T](1), a.buffer[DType.int64](10), a.buffer[T](14), counter,
        a.integer(11), a.integer(12), layout.depth, made, panels,
    )
    var correlate = Correlate[T](
        layout, a.buffer[T](0), a.buffer[T](14), a.buffer[T](2), a.buffer[T](3),
        a.buffer[T](15), counter, made, a.integer(18),
    )
    var small = layout.groups * panels * layout.depth * ROWS < FEW
    parallel_for(Team(team), layout.groups * panels, pack, small)
    if counter[1] == 0:
        parallel_for(Team(team), workers, correlate)


@export
def correlate(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(source, weight, bias, out, numbers, phases, offsets, number of phases, depth,
    room of a strip, taps, step between groups, step between rows of the weight,
    channels made in a group, packed, work, counter, workers, tasks, bytes)

    counter[1] is above 0 afterwards where the weight is not finite; then nothing is
    convolved.
    """
    if arguments.integer(19) == 4:
        run_correlate[f32](team, arguments)
    else:
        run_correlate[f64](team, arguments)
    return done()


# -------------------------------------------------------------- gradient for the weight


@fieldwise_init
struct WeightSums[T: DType](Kernel):
    """The gradient for the weight, in parts that `AddParts` adds.

    # source [N, G * C, H, W], grad [N, G * M, OH, OW]
    # -> parts [blocks, G * splits, tiles, DOT_ROOM]

        for m, t:  part = sum over n of a block, position of
                   grad[n, m, position] * strip[offsets[t] + position]

    A task is a block of images, a group, and one of `splits` parts of its channels. It
    adds all its images, in order, to its own part. The number of blocks depends on the
    shapes alone, so the sums do not depend on the number of threads. A tile is 4
    channels by 6 taps, and a register holds a vector of positions of one sum: 24
    multiply-adds for 10 loads.
    """

    var layout: Layout
    var source: Buffer[Self.T]
    var grad: Buffer[Self.T]
    var parts: Buffer[Self.T]
    var work: Buffer[Self.T]  # for each worker: lines [part, room_of_line], a strip
    var counter: Table
    var images: Int
    var made: Int  # M
    var blocks: Int
    var splits: Int
    var part: Int  # channels of a split
    var line: Int  # elements of a line

    comptime w = simd_width_of[Self.T]()

    def run(self, worker: Int):
        var l = self.layout
        var lines = self.work.at(worker * (self.part * self.line + l.room))
        var strip = lines.at(self.part * self.line)
        var task = next_task(self.counter)
        while task < self.blocks * l.groups * self.splits:
            var block = task // (l.groups * self.splits)
            var split = task - block * l.groups * self.splits
            var room = tiles_of(self.part, l.depth) * DOT_ROOM
            var sums = self.parts.at(task * room)
            fill(sums, room, 0)
            var first = block * self.images // self.blocks
            var last = (block + 1) * self.images // self.blocks
            for n in range(first, last):
                self.image(n, split, lines, strip, sums)
            task = next_task(self.counter)

    def image(
        self, n: Int, split: Int, lines: Buffer[Self.T], strip: Buffer[Self.T],
        sums: Buffer[Self.T],
    ):
        """Add what one image has to say about the channels of a split."""
        var l = self.layout
        var image = n * l.groups + split // self.splits
        var low = split % self.splits * self.part
        var count = min(self.part, self.made - low)
        var source = self.source.at(image * l.channels * l.height * l.width)
        var plane = l.count_h * l.count_w
        var grad = self.grad.at((image * self.made + low) * plane)
        for first in range(0, l.count_h, l.strip):
            var rows = min(l.strip, l.count_h - first)
            l.lay_out(source, first, strip)
            self.widen(grad.at(first * l.count_w), count, rows, lines)
            for m in range(0, count, DOT_ROWS):
                for t in range(0, l.depth, DOT_TAPS):
                    self.tile(lines, strip, sums, m, t, count, rows * l.columns)

    @always_inline
    def widen(
        self, grad: Buffer[Self.T], count: Int, rows: Int, lines: Buffer[Self.T]
    ):
        """Lay rows of the gradient out with zeros up to a width of P.

        # grad: `count` planes [OH, OW] -> lines [count, line]
        """
        var l = self.layout
        fill(lines, count * self.line, 0)
        for m in range(count):
            var x = grad.at(m * l.count_h * l.count_w)
            var line = lines.at(m * self.line)
            copy_block(x, l.count_w, line, l.columns, rows, l.count_w, 0)

    @always_inline
    def tile(
        self, lines: Buffer[Self.T], strip: Buffer[Self.T], sums: Buffer[Self.T],
        m: Int, t: Int, count: Int, positions: Int,
    ):
        """Add to the sums of channels m and following, taps t and following."""
        comptime V = SIMD[Self.T, Self.w]
        var l = self.layout
        var parts = Array[V, DOT_ROOM](fill=V(0))
        var x = Array[Buffer[Self.T], DOT_TAPS](fill=strip)
        comptime for j in range(DOT_TAPS):
            x[j] = strip.at(Int(l.offsets[min(t + j, l.depth - 1)]))
        for p in range(0, positions, Self.w):
            comptime for i in range(DOT_ROWS):
                var row = min(m + i, count - 1) * self.line
                var left = lines.load[Self.w](row + p)
                comptime for j in range(DOT_TAPS):
                    comptime at = i * DOT_TAPS + j
                    parts[at] = x[j].load[Self.w](p).fma(left, parts[at])
        add_lanes(parts)
        var across = ceildiv(l.depth, DOT_TAPS)
        var z = sums.at((m // DOT_ROWS * across + t // DOT_TAPS) * DOT_ROOM)
        comptime for v in range(DOT_ROOM // Self.w):
            z.store[Self.w](v * Self.w, z.load[Self.w](v * Self.w) + parts[v])


@always_inline
def add_lanes[T: DType, w: Int](mut x: Array[SIMD[T, w], DOT_ROOM]):
    """Put the sum of the lanes of x[i] into lane i % w of x[i // w].

    Two vectors become one that holds sums of neighbours: a0 + a1, a2 + a3, ..., b0 +
    b1, ... After log2(w) rounds of it each lane is the sum of a vector. Adding up the
    lanes of one vector after the other would take four times as many instructions.
    """
    comptime for level in range(4):
        comptime if (1 << level) < w:
            comptime for i in range(DOT_ROOM >> (level + 1)):
                var both = x[2 * i].join(x[2 * i + 1]).deinterleave()
                x[i] = rebind[SIMD[T, w]](both[0]) + rebind[SIMD[T, w]](both[1])


@fieldwise_init
struct AddParts[T: DType](Kernel):
    """out[m, t] = the sum of the parts of all blocks, in order; a task is one tile.

    # parts [blocks, G * splits, tiles, DOT_ROOM] -> z [G * M, depth]

    Notes down what is not finite.
    """

    var parts: Buffer[Self.T]
    var z: Buffer[Self.T]
    var counter: Table
    var blocks: Int
    var block: Int  # elements of a block
    var splits: Int
    var part: Int
    var made: Int
    var depth: Int

    def run(self, task: Int):
        var total = SIMD[Self.T, DOT_ROOM](0)
        for block in range(self.blocks):
            total += self.parts.load[DOT_ROOM](block * self.block + task * DOT_ROOM)
        if not isfinite(total).reduce_and():
            not_finite(self.counter)
        var across = ceildiv(self.depth, DOT_TAPS)
        var split = task // tiles_of(self.part, self.depth)
        var tile = task - split * tiles_of(self.part, self.depth)
        var low = split % self.splits * self.part
        var count = min(self.part, self.made - low)
        var first = split // self.splits * self.made + low
        comptime for i in range(DOT_ROWS):
            var m = tile // across * DOT_ROWS + i
            comptime for j in range(DOT_TAPS):
                var t = tile % across * DOT_TAPS + j
                if m < count and t < self.depth:
                    self.z[(first + m) * self.depth + t] = total[i * DOT_TAPS + j]


@always_inline
def tiles_of(part: Int, depth: Int) -> Int:
    """How many tiles hold the sums of `part` channels."""
    return ceildiv(part, DOT_ROWS) * ceildiv(depth, DOT_TAPS)


@export
def part_room(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(channels of a split, depth) -> elements of a part of `WeightSums`"""
    var tiles = tiles_of(arguments.integer(0), arguments.integer(1))
    return integer(tiles * DOT_ROOM)


def run_weight_sums[T: DType](team: Object, a: Arguments):
    var layout = Layout(a, 3)
    var made = a.integer(10)
    var blocks = a.integer(11)
    var splits = a.integer(12)
    var part = a.integer(13)
    var sums = WeightSums[T](
        layout, a.buffer[T](0), a.buffer[T](1), a.buffer[T](15), a.buffer[T](16),
        a.buffer[DType.int64](17), a.integer(9), made, blocks, splits, part,
        a.integer(14),
    )
    var tiles = layout.groups * splits * tiles_of(part, layout.depth)
    var add = AddParts[T](
        a.buffer[T](15), a.buffer[T](2), a.buffer[DType.int64](17), blocks,
        tiles * DOT_ROOM, splits, part, made, layout.depth,
    )
    parallel_for(Team(team), a.integer(18), sums)
    parallel_for(Team(team), tiles, add, blocks * tiles * DOT_ROOM < FEW)


@export
def weight_sums(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(source, grad, out, numbers, phases, offsets, number of phases, depth, room of a
    strip, images, channels made in a group, blocks, splits, channels of a split,
    elements of a line, parts, work, counter, workers, bytes)

    counter[1] is above 0 afterwards where a sum is not finite.
    """
    if arguments.integer(19) == 4:
        run_weight_sums[f32](team, arguments)
    else:
        run_weight_sums[f64](team, arguments)
    return done()
