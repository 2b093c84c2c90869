"""Indexing: read and write elements whose positions are in another tensor.

With this file the backend can look single elements up (`gather`), add to them or
overwrite them (`scatter`), and read, add to or overwrite whole slices (`index_select`,
`index_add`, `index_copy`).

All kernels see a tensor as [outer, n, inner], with the indexed dimension in the middle.
Indices are checked in a pass of their own (`first_outside`), before anything is
written. What only moves elements does not care what they are, just how many bytes they
have: 1, 4 or 8.
"""

from std.math import ceildiv
from std.sys import simd_width_of

from bridge import Arguments, Buffer, Object, by_bytes, by_type, integer
from lines import load_part, lines_per_task, store_part
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
    """(index, n) -> where the first index outside [0, n) is, or -1"""
    var index = arguments.buffer[DType.int64](0)
    var n = Int64(arguments.integer(1))
    for i in range(arguments.size(0)):
        if index[i] < 0 or index[i] >= n:
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
        return ceildiv(self.lines(), lines_per_task(self.length()))

    def run(self, task: Int):
        var length = self.length()
        var per_task = lines_per_task(length)
        var step = 1 if self.inner > 1 else 0
        var of_slab = self.m * self.inner // length
        var last = min(task * per_task + per_task, self.lines())
        for line in range(task * per_task, last):
            var a = self.a.at(line // of_slab * self.n * self.inner)
            var index = self.index.at(line * length)
            var z = self.z.at(line * length)
            for k in range(length):
                z[k] = a[Int(index[k]) * self.inner + k * step]


@fieldwise_init
struct Scatter[T: DType](Kernel):
    """a[o, index[o, j, k], k] += src[o, j, k], or = without `adds`

    # a [outer, n, inner], index and src [outer, m, inner]

    A task is some columns k of a slab o, in which j goes from 0 up: two elements that
    go to one place are in one column, so no two threads ever write to the same place,
    and the order of the additions is fixed; the last one wins.
    """

    var a: Buffer[Self.T]
    var index: Index
    var src: Buffer[Self.T]
    var adds: Bool
    var n: Int
    var m: Int
    var inner: Int

    def run(self, task: Int):
        var chunks = ceildiv(self.inner, COLUMNS)
        var outer = task // chunks
        var low = (task - outer * chunks) * COLUMNS
        var high = min(low + COLUMNS, self.inner)
        var a = self.a.at(outer * self.n * self.inner)
        for j in range(self.m):
            var at = (outer * self.m + j) * self.inner
            for k in range(low, high):
                var to = Int(self.index[at + k]) * self.inner + k
                var x = self.src[at + k]
                a[to] = both[Self.T, 1](a[to], x) if self.adds else x


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
        var per_task = lines_per_task(self.inner)
        for row in range(task * per_task, min(task * per_task + per_task, self.rows)):
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
        var chunks = ceildiv(self.inner, COLUMNS)
        var outer = task // chunks
        var low = (task - outer * chunks) * COLUMNS
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


def run_gather[T: DType](team: Object, a: Arguments):
    var m = a.integer(4)
    var inner = a.integer(5)
    var kernel = Gather[T](
        a.buffer[T](0), a.buffer[DType.int64](1), a.buffer[T](2),
        a.size(2) // (m * inner), a.integer(3), m, inner,
    )
    parallel_for(Team(team), kernel.tasks(), kernel)


@export
def gather(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, out, n, m, inner)"""
    return by_bytes[run_gather](team, arguments, 0)


def run_scatter[T: DType](team: Object, a: Arguments):
    var m = a.integer(5)
    var inner = a.integer(6)
    var kernel = Scatter[T](
        a.buffer[T](0), a.buffer[DType.int64](1), a.buffer[T](2), a.integer(3) != 0,
        a.integer(4), m, inner,
    )
    var tasks = a.size(2) // (m * inner) * ceildiv(inner, COLUMNS)
    parallel_for(Team(team), tasks, kernel, a.size(2) < SERIAL)


@export
def scatter(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, src, adds, n, m, inner): into a"""
    return by_type[run_scatter](team, arguments, 0)


def run_index_select[T: DType](team: Object, a: Arguments):
    var inner = a.integer(4)
    var slices = a.size(2) // inner
    var kernel = CopySlices[T](
        a.buffer[T](0), a.buffer[DType.int64](1), a.buffer[T](2), a.integer(3),
        a.size(1), inner, slices,
    )
    parallel_for(Team(team), ceildiv(slices, lines_per_task(inner)), kernel)


@export
def index_select(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, out, n, inner)"""
    return by_bytes[run_index_select](team, arguments, 0)


def run_index_add[T: DType](team: Object, a: Arguments):
    var m = a.size(1)
    var inner = a.integer(4)
    var kernel = AddSlices[T](
        a.buffer[T](0), a.buffer[DType.int64](1), a.buffer[T](2), a.integer(3), m, inner
    )
    var tasks = a.size(2) // (m * inner) * ceildiv(inner, COLUMNS)
    parallel_for(Team(team), tasks, kernel, a.size(2) < SERIAL)


@export
def index_add(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, src, n, inner): into a"""
    return by_type[run_index_add](team, arguments, 0)


def run_index_copy[T: DType](team: Object, a: Arguments):
    var m = a.size(1)
    var inner = a.integer(4)
    var kernel = PutSlices[T](
        a.buffer[T](0), a.buffer[DType.int64](1), a.buffer[T](2), a.integer(3), m, inner
    )
    parallel_for(Team(team), a.size(2) // (m * inner), kernel, a.size(2) < SERIAL)


@export
def index_copy(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, index, src, n, inner): into a"""
    return by_bytes[run_index_copy](team, arguments, 0)
