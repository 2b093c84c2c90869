"""Indexing: read and write elements whose positions are in another tensor.

With this file `indexing.py` can look single elements up (`gather`), add to them
(`scatter_add`), and read, add to or overwrite whole slices (`index_select`,
`index_add`, `index_copy_`).

All kernels see a tensor as [outer, n, inner], with the indexed dimension in the middle.
Indices are checked in a pass of their own (`first_outside`), before anything is
written. What only moves elements does not care what they are, just how many bytes they
have: 1, 4 or 8.
"""

from std.math import ceildiv
from std.sys import simd_width_of

from bridge import Arguments, Buffer, Object, done, integer
from lines import load_part, share_of, store_part
from parallel import Kernel, Team, parallel_for

comptime Index = Buffer[DType.int64]
comptime COLUMNS = 64  # columns that one task adds: four cache lines of float32
comptime SERIAL = 4096  # elements that one thread adds alone


@always_inline
def both[T: DType, w: Int](x: SIMD[T, w], y: SIMD[T, w]) -> SIMD[T, w]:
    """x + y; of truth values, which are kept as bytes of 0 and 1, x or y."""
    comptime if T == DType.uint8:
        return x | y
    return x + y


@export
def first_outside(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(index, how many, size) -> where the first index outside [0, size) is, or -1"""
    var index = arguments.buffer[DType.int64](0)
    var size = Int64(arguments.integer(2))
    for i in range(arguments.integer(1)):
        if index[i] < 0 or index[i] >= size:
            return integer(i)
    return integer(-1)


# ----------------------------------------------------------------------------- elements


@fieldwise_init
struct Gather[T: DType](Kernel):
    """z[o, j, k] = a[o, index[o, j, k], k]

    # a [outer, n, inner], index and z [outer, m, inner]

    A task is some lines: those along k for each (o, j) or, where inner is 1, those
    along j for each o.
    """

    var a: Buffer[Self.T]
    var index: Index
    var z: Buffer[Self.T]
    var outer: Int
    var n: Int
    var m: Int
    var inner: Int

    @always_inline
    def length(self) -> Int:
        return self.inner if self.inner > 1 else self.m

    @always_inline
    def lines(self) -> Int:
        return self.outer * self.m * self.inner // self.length()

    @always_inline
    def tasks(self) -> Int:
        return ceildiv(self.lines(), share_of(self.length()))

    def run(self, task: Int):
        var length = self.length()
        var share = share_of(length)
        var step = 1 if self.inner > 1 else 0
        var of_slab = self.m * self.inner // length
        for line in range(task * share, min(task * share + share, self.lines())):
            var a = self.a.at(line // of_slab * self.n * self.inner)
            var index = self.index.at(line * length)
            var z = self.z.at(line * length)
            for k in range(length):
                z[k] = a[Int(index[k]) * self.inner + k * step]


@fieldwise_init
struct ScatterAdd[T: DType](Kernel):
    """a[o, index[o, j, k], k] += src[o, j, k]

    # a [outer, n, inner], index and src [outer, m, inner]

    A task is some columns k of a slab o, in which j goes from 0 up: two elements that
    go to one place are in one column, so no two threads ever add to the same place, and
    the order of the additions is fixed.
    """

    var a: Buffer[Self.T]
    var index: Index
    var src: Buffer[Self.T]
    var n: Int
    var m: Int
    var inner: Int

    def run(self, task: Int):
        var pieces = ceildiv(self.inner, COLUMNS)
        var outer = task // pieces
        var low = (task - outer * pieces) * COLUMNS
        var high = min(low + COLUMNS, self.inner)
        var a = self.a.at(outer * self.n * self.inner)
        for j in range(self.m):
            var at = (outer * self.m + j) * self.inner
            for k in range(low, high):
                var to = Int(self.index[at + k]) * self.inner + k
                a[to] = both[Self.T, 1](a[to], self.src[at + k])


# ------------------------------------------------------------------------------- slices


@fieldwise_init
struct CopySlices[T: DType](Kernel):
    """z[o, j, :] = a[o, index[j], :]; a task is some rows (o, j)."""

    var a: Buffer[Self.T]
    var index: Index
    var z: Buffer[Self.T]
    var n: Int
    var m: Int
    var inner: Int
    var rows: Int  # outer * m

    def run(self, task: Int):
        comptime w = simd_width_of[Self.T]()
        var share = share_of(self.inner)
        for row in range(task * share, min(task * share + share, self.rows)):
            var outer = row // self.m
            var from_ = outer * self.n + Int(self.index[row - outer * self.m])
            var x = self.a.at(from_ * self.inner)
            var z = self.z.at(row * self.inner)
            for k in range(0, self.inner, w):
                store_part(z, k, self.inner, load_part[w](x, k, self.inner, 0))


@fieldwise_init
struct AddSlices[T: DType](Kernel):
    """a[o, index[j], :] += src[o, j, :], for j from 0 up.

    A task is up to COLUMNS columns of a slab o, for all j, so that no two add to the
    same place and the order of the additions is fixed.
    """

    var a: Buffer[Self.T]
    var index: Index
    var src: Buffer[Self.T]
    var n: Int
    var m: Int
    var inner: Int

    def run(self, task: Int):
        comptime w = simd_width_of[Self.T]()
        var pieces = ceildiv(self.inner, COLUMNS)
        var outer = task // pieces
        var low = (task - outer * pieces) * COLUMNS
        var width = min(COLUMNS, self.inner - low)
        for j in range(self.m):
            var to = outer * self.n + Int(self.index[j])
            var z = self.a.at(to * self.inner + low)
            var x = self.src.at((outer * self.m + j) * self.inner + low)
            for k in range(0, width, w):
                var old = load_part[w](z, k, width, 0)
                store_part(z, k, width, both(old, load_part[w](x, k, width, 0)))


@fieldwise_init
struct PutSlices[T: DType](Kernel):
    """a[o, index[j], :] = src[o, j, :], for j from 0 up: the last one wins.

    A task is a slab o.
    """

    var a: Buffer[Self.T]
    var index: Index
    var src: Buffer[Self.T]
    var n: Int
    var m: Int
    var inner: Int

    def run(self, outer: Int):
        comptime w = simd_width_of[Self.T]()
        for j in range(self.m):
            var to = outer * self.n + Int(self.index[j])
            var z = self.a.at(to * self.inner)
            var x = self.src.at((outer * self.m + j) * self.inner)
            for k in range(0, self.inner, w):
                store_part(z, k, self.inner, load_part[w](x, k, self.inner, 0))


# ------------------------------------------------------------------- called from Python


def run_move[T: DType, name: StaticString](team: Object, a: Arguments):
    """Arguments: a, index, z or src, outer, n, m, inner."""
    var outer = a.integer(3)
    var n = a.integer(4)
    var m = a.integer(5)
    var inner = a.integer(6)
    var x = a.buffer[T](0)
    var index = a.buffer[DType.int64](1)
    var z = a.buffer[T](2)
    comptime if name == "gather":
        var kernel = Gather[T](x, index, z, outer, n, m, inner)
        parallel_for(Team(team), kernel.tasks(), kernel)
    elif name == "select":
        var kernel = CopySlices[T](x, index, z, n, m, inner, outer * m)
        parallel_for(Team(team), ceildiv(outer * m, share_of(inner)), kernel)
    else:
        var kernel = PutSlices[T](x, index, z, n, m, inner)
        parallel_for(Team(team), outer, kernel, outer * m * inner < SERIAL)


def move[name: StaticString](team: Object, a: Arguments) -> Object:
    """Arguments: those of `run_move`, then the bytes of an element."""
    var item = a.integer(7)
    if item == 4:
        run_move[DType.int32, name](team, a)
    elif item == 8:
        run_move[DType.int64, name](team, a)
    else:
        run_move[DType.uint8, name](team, a)
    return done()


@export
def gather(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, out, outer, n, m, inner, bytes)"""
    return move["gather"](team, arguments)


@export
def index_select(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, out, outer, n, m, inner, bytes)"""
    return move["select"](team, arguments)


@export
def index_copy(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(out, index, src, outer, n, m, inner, bytes)"""
    return move["put"](team, arguments)


def run_add[T: DType, name: StaticString](team: Object, a: Arguments):
    """Arguments: a, index, src, outer, n, m, inner."""
    var outer = a.integer(3)
    var n = a.integer(4)
    var m = a.integer(5)
    var inner = a.integer(6)
    var x = a.buffer[T](0)
    var index = a.buffer[DType.int64](1)
    var src = a.buffer[T](2)
    var tasks = outer * ceildiv(inner, COLUMNS)
    var serial = outer * m * inner < SERIAL
    comptime if name == "scatter":
        var kernel = ScatterAdd[T](x, index, src, n, m, inner)
        parallel_for(Team(team), tasks, kernel, serial)
    else:
        var kernel = AddSlices[T](x, index, src, n, m, inner)
        parallel_for(Team(team), tasks, kernel, serial)


def add[name: StaticString](team: Object, a: Arguments) -> Object:
    """Arguments: those of `run_add`, then the type."""
    var type = a.text(7)
    if type == "float32":
        run_add[DType.float32, name](team, a)
    elif type == "float64":
        run_add[DType.float64, name](team, a)
    elif type == "int64":
        run_add[DType.int64, name](team, a)
    elif type == "bool":
        run_add[DType.uint8, name](team, a)
    else:
        run_add[DType.int32, name](team, a)
    return done()


@export
def scatter_add(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, src, outer, n, m, inner, type): into a"""
    return add["scatter"](team, arguments)


@export
def index_add(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, src, outer, n, m, inner, type): into a"""
    return add["slices"](team, arguments)
