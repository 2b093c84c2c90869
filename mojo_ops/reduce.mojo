"""Reductions: fold one dimension of [outer, n, inner] into single elements.

With this file `reduce.py` can fold sums, products, extremes and logical operators
(`fold`); the backend finds first places of extremes (`argmax`, `argmin`) and adds up
along a dimension (`cumsum`).

    out[o, k] = f(... f(f(start, a[o, 0, k]), a[o, 1, k]) ..., a[o, n - 1, k])

The elements may be taken in any order, and that order depends on the shape alone: long
folds are cut into blocks of fixed size (`reduce.py` says where), each folded by one
task, and the blocks' results are folded in order. So the result is the same, to the
last bit, on any number of threads. float32 is folded in float32 for a while (`BLOCK`
elements, `STEPS` rows), and these parts in float64, so that errors do not grow with the
length.
"""

from std.math import ceildiv
from std.sys import simd_width_of

import operators as op
from bridge import (
    BOOL, Arguments, Buffer, Object, by_number, by_type, done, load_some, store_some,
)
from parallel import Kernel, Team, parallel_for

comptime f32 = DType.float32
comptime f64 = DType.float64

comptime Binary = def[T: DType, w: Int](SIMD[T, w], SIMD[T, w]) thin -> SIMD[T, w]

comptime BLOCK = 512  # elements of a row folded in their own type
comptime STEPS = 16  # rows folded in their own type
comptime TASK = 16384  # elements in a task, about
comptime STRIPE = 4  # vectors of columns that go down together


def wide[T: DType]() -> DType:
    """The type in which parts are put together."""
    return f64 if T == f32 else T


@always_inline
def exclusive_or[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    """For truth values, which are bytes 0 and 1."""
    return (x - y) * (x - y)


@always_inline
def across[T: DType, w: Int, f: Binary](x: SIMD[T, w]) -> Scalar[T]:
    """Fold the lanes of a vector: halves onto each other, until one is left."""
    comptime if w == 1:
        return x[0]
    comptime half = w // 2
    var low = x.slice[half, offset=0]()
    var high = x.slice[half, offset=half]()
    return across[T, half, f](f[T, half](low, high))


@always_inline
def some_or[
    T: DType, w: Int
](x: Buffer[T], i: Int, n: Int, other: Scalar[T]) -> SIMD[T, w]:
    """Elements i to i + w - 1, and `other` from n on."""
    var out_ = load_some[T, w](x, i, n)
    comptime for lane in range(w):
        if i + lane >= n:
            out_[lane] = other
    return out_


@always_inline
def fold_block[
    T: DType, f: Binary
](x: Buffer[T], n: Int, start: Scalar[T]) -> Scalar[T]:
    """The fold of n elements, 4 vectors of them side by side."""
    comptime w = simd_width_of[T]()
    var sums = Array[SIMD[T, w], 4](fill=SIMD[T, w](start))
    var whole = n // (4 * w) * (4 * w)
    for i in range(0, whole, 4 * w):
        comptime for j in range(4):
            sums[j] = f[T, w](sums[j], x.load[w](i + j * w))
    for i in range(whole, n, w):
        sums[0] = f[T, w](sums[0], some_or[T, w](x, i, n, start))
    var low = f[T, w](sums[0], sums[1])
    var high = f[T, w](sums[2], sums[3])
    return across[T, w, f](f[T, w](low, high))


# ------------------------------------------------------------------------- the kernels


@fieldwise_init
struct Cut[T: DType](TrivialRegisterPassable):
    """What is folded, and how it is cut.

    A *unit* is what one task does at least: one block of one row for rows, one stripe
    of one block of columns else.
    """

    var a: Buffer[Self.T]
    var z: Buffer[Self.T]
    var partial: Buffer[wide[Self.T]()]
    var start: Scalar[Self.T]
    var outer: Int
    var n: Int
    var inner: Int
    var blocks: Int  # into which n is cut
    var block: Int  # how long they are
    var per_task: Int  # units in a task

    def __init__(out self, arguments: Arguments):
        """(name, a, out, partial, start, outer, n, inner, block, per_task)."""
        self.a = arguments.buffer[Self.T](1)
        self.z = arguments.buffer[Self.T](2)
        self.partial = arguments.buffer[wide[Self.T]()](3)
        self.start = arguments.buffer[Self.T](4)[0]
        self.outer = arguments.integer(5)
        self.n = arguments.integer(6)
        self.inner = arguments.integer(7)
        self.block = arguments.integer(8)
        self.blocks = ceildiv(self.n, self.block)
        self.per_task = arguments.integer(9)


@fieldwise_init
struct FoldRows[T: DType, f: Binary](Kernel):
    """Fold rows, [outer, n]: out[o] = fold of a[o, 0], ..., a[o, n - 1]."""

    var c: Cut[Self.T]

    @always_inline
    def units(self) -> Int:
        return self.c.outer * self.c.blocks

    def run(self, task: Int):
        var first = task * self.c.per_task
        for unit in range(first, min(first + self.c.per_task, self.units())):
            var row = unit // self.c.blocks
            var begin = (unit - row * self.c.blocks) * self.c.block
            var x = self.c.a.at(row * self.c.n + begin)
            var total = self.fold(x, min(self.c.block, self.c.n - begin))
            if self.c.blocks == 1:
                self.c.z[unit] = total.cast[Self.T]()
            else:
                self.c.partial[unit] = total

    @always_inline
    def fold(self, x: Buffer[Self.T], n: Int) -> Scalar[wide[Self.T]()]:
        comptime W = wide[Self.T]()
        var total = self.c.start.cast[W]()
        for low in range(0, n, BLOCK):
            var size = min(BLOCK, n - low)
            var part = fold_block[Self.T, Self.f](x.at(low), size, self.c.start)
            total = Self.f[W, 1](total, part.cast[W]())
        return total


@fieldwise_init
struct FoldColumns[T: DType, f: Binary](Kernel):
    """Fold down columns: out[o, k] = fold of a[o, 0, k], ..., a[o, n - 1, k].

    A unit is a stripe of 4 vectors of columns, whose totals stay in registers:

        a[o]   k k k k | k k k k | ...        rows of `inner` elements
               k k k k | k k k k
               stripe 0  stripe 1
    """

    var c: Cut[Self.T]

    comptime w = simd_width_of[Self.T]()
    comptime W = wide[Self.T]()

    @always_inline
    def stripes(self) -> Int:
        return ceildiv(self.c.inner, STRIPE * Self.w)

    @always_inline
    def units(self) -> Int:
        return self.c.outer * self.c.blocks * self.stripes()

    def run(self, task: Int):
        var first = task * self.c.per_task
        for unit in range(first, min(first + self.c.per_task, self.units())):
            var block = unit // self.stripes()
            var k = (unit - block * self.stripes()) * STRIPE * Self.w
            if k + STRIPE * Self.w <= self.c.inner:
                self.stripe[STRIPE, True](block, k)
            else:
                for j in range(k, self.c.inner, Self.w):
                    self.stripe[1, False](block, j)

    @always_inline
    def stripe[vectors: Int, whole: Bool](self, block: Int, k: Int):
        """Fold `vectors` vectors of columns from k on, in block number `block`."""
        var o = block // self.c.blocks
        var first = (block - o * self.c.blocks) * self.c.block
        var last = min(first + self.c.block, self.c.n)
        var begin = SIMD[Self.W, Self.w](self.c.start.cast[Self.W]())
        var totals = Array[SIMD[Self.W, Self.w], vectors](fill=begin)
        for low in range(first, last, STEPS):
            var sums = Array[SIMD[Self.T, Self.w], vectors](
                fill=SIMD[Self.T, Self.w](self.c.start)
            )
            for i in range(low, min(low + STEPS, last)):
                var x = self.c.a.at((o * self.c.n + i) * self.c.inner + k)
                comptime for j in range(vectors):
                    comptime if whole:
                        var y = x.load[Self.w](j * Self.w)
                        sums[j] = Self.f[Self.T, Self.w](sums[j], y)
                    else:
                        var y = load_some[Self.T, Self.w](x, 0, self.c.inner - k)
                        sums[j] = Self.f[Self.T, Self.w](sums[j], y)
            comptime for j in range(vectors):
                var part = sums[j].cast[Self.W]()
                totals[j] = Self.f[Self.W, Self.w](totals[j], part)
        comptime for j in range(vectors):
            self.write(totals[j], o, block, k + j * Self.w)

    @always_inline
    def write(self, total: SIMD[Self.W, Self.w], o: Int, block: Int, k: Int):
        """Write the totals of columns k to k + w, as far as they exist."""
        var n = self.c.inner - k
        if self.c.blocks == 1:
            var z = self.c.z.at(o * self.c.inner + k)
            store_some[Self.T, Self.w](z, 0, n, total.cast[Self.T]())
        else:
            var z = self.c.partial.at(block * self.c.inner + k)
            store_some[Self.W, Self.w](z, 0, n, total)


@fieldwise_init
struct FoldBlocks[T: DType, f: Binary](Kernel):
    """Fold the results of blocks, in order: partial [outer, blocks, inner]."""

    var c: Cut[Self.T]

    comptime OUTPUTS = 256  # in a task

    @always_inline
    def tasks(self) -> Int:
        return ceildiv(self.c.outer * self.c.inner, Self.OUTPUTS)

    def run(self, task: Int):
        comptime W = wide[Self.T]()
        var first = task * Self.OUTPUTS
        var last = min(first + Self.OUTPUTS, self.c.outer * self.c.inner)
        for i in range(first, last):
            var o = i // self.c.inner
            var k = i - o * self.c.inner
            var total = self.c.start.cast[W]()
            for block in range(self.c.blocks):
                var at = (o * self.c.blocks + block) * self.c.inner + k
                total = Self.f[W, 1](total, self.c.partial[at])
            self.c.z[i] = total.cast[Self.T]()


@fieldwise_init
struct First[T: DType, f: Binary](Kernel):
    """out[r] = the first place of the fold of row r, in a [rows, n].

    Two passes over a row: the extreme itself, then the first element equal to it. NaN
    wins the first pass and is found in the second. A task is `per_task` rows.
    """

    var a: Buffer[Self.T]
    var z: Buffer[DType.int64]
    var rows: Int
    var n: Int
    var per_task: Int

    def run(self, task: Int):
        var first = task * self.per_task
        for row in range(first, min(first + self.per_task, self.rows)):
            var x = self.a.at(row * self.n)
            var best = fold_block[Self.T, Self.f](x, self.n, x[0])
            var place = 0
            while not (x[place] == best or op.isnan[Self.T, 1](x[place])):
                place += 1
            self.z[row] = Int64(place)


# ------------------------------------------------------------------- called from Python


def fold_by[T: DType, f: Binary](team: Object, arguments: Arguments):
    var cut = Cut[T](arguments)
    if cut.inner == 1:
        var rows = FoldRows[T, f](cut)
        parallel_for(Team(team), ceildiv(rows.units(), cut.per_task), rows)
    else:
        var columns = FoldColumns[T, f](cut)
        parallel_for(Team(team), ceildiv(columns.units(), cut.per_task), columns)
    if cut.blocks > 1:
        var blocks = FoldBlocks[T, f](cut)
        parallel_for(Team(team), blocks.tasks(), blocks)


def fold_numbers[T: DType](team: Object, arguments: Arguments):
    var name = arguments.text(0)
    if name == "add":
        fold_by[T, op.add](team, arguments)
    elif name == "mul":
        fold_by[T, op.mul](team, arguments)
    elif name == "maximum":
        fold_by[T, op.maximum](team, arguments)
    else:
        fold_by[T, op.minimum](team, arguments)


def fold_truth(team: Object, arguments: Arguments):
    """Truth values are bytes, 0 or 1: "and" is their minimum, "or" their maximum."""
    var name = arguments.text(0)
    if name == "logical_and" or name == "minimum":
        fold_by[DType.uint8, op.minimum](team, arguments)
    elif name == "logical_xor":
        fold_by[DType.uint8, exclusive_or](team, arguments)
    else:
        fold_by[DType.uint8, op.maximum](team, arguments)


@export
def fold(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """See `Cut`: the name of an operator, the tensor, and how it is cut."""
    if arguments.type(1) != BOOL:
        return by_number[fold_numbers](team, arguments, 1)
    fold_truth(team, arguments)
    return done()


def find_first[T: DType, f: Binary](team: Object, a: Arguments):
    var n = a.integer(1)
    var rows = a.size(2)
    var per_task = max(1, TASK // n)
    var kernel = First[T, f](
        a.buffer[T](0), a.buffer[DType.int64](2), rows, n, per_task
    )
    parallel_for(Team(team), ceildiv(rows, per_task), kernel)


def run_argmax[T: DType](team: Object, a: Arguments):
    find_first[T, op.maximum](team, a)


@export
def argmax(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(rows, n, out), see `First`."""
    return by_type[run_argmax](team, arguments, 0)


def run_argmin[T: DType](team: Object, a: Arguments):
    find_first[T, op.minimum](team, a)


@export
def argmin(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(rows, n, out), see `First`."""
    return by_type[run_argmin](team, arguments, 0)


@fieldwise_init
struct RunningSums[T: DType](Kernel):
    """out[o, i, k] = a[o, 0, k] + ... + a[o, i, k]

    A task is `per_task` lines (o, k).
    """

    var a: Buffer[Self.T]
    var z: Buffer[Self.T]
    var lines: Int
    var n: Int
    var inner: Int
    var per_task: Int

    def run(self, task: Int):
        var first = task * self.per_task
        for line in range(first, min(first + self.per_task, self.lines)):
            var o = line // self.inner
            var at = o * self.n * self.inner + line - o * self.inner
            var total = Scalar[Self.T](0)
            for _ in range(self.n):
                total += self.a[at]
                self.z[at] = total
                at += self.inner


def run_cumsum[T: DType](team: Object, a: Arguments):
    var n = a.integer(1)
    var lines = a.size(0) // n
    var per_task = max(1, TASK // n)
    var kernel = RunningSums(
        a.buffer[T](0), a.buffer[T](3), lines, n, a.integer(2), per_task
    )
    parallel_for(Team(team), ceildiv(lines, per_task), kernel)


@export
def cumsum(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, n, inner, out), see `RunningSums`."""
    return by_number[run_cumsum](team, arguments, 0)
