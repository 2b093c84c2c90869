"""Pooling over windows of a plane, forward and backward.

With this file the backend can take the maximum (`max_pool2d`) or the mean
(`avg_pool2d`) of each window of x [N, C, H, W], and bring gradients back to x.

Planes do not touch each other: a task is some whole planes of N * C, forward it writes
their outputs, backward it adds into their part of the gradient, in the order of the
windows. Results do not depend on the number of threads.

Forward, a vector is 16 windows side by side, and what is known of them stays in
registers while the taps of the window pass by. Windows that reach into the padding are
done one by one, by the same function with vectors of 1.
"""

from std.math import ceildiv, iota
from std.sys import simd_width_of
from std.utils.numerics import inf

from bridge import Arguments, Buffer, Object, by_float
from lines import fill, load_part, lines_per_task, store_part
from parallel import Kernel, Team, parallel_for

comptime Places = Buffer[DType.int64]


struct Windows(TrivialRegisterPassable):
    """Which windows there are: the sizes of planes, and of windows in both directions.

    Window (oh, ow) sees (oh * s0 - p0 + kh * d0, ow * s1 - p1 + kw * d1). The numbers
    come in an array, in this order (`windows_in`).
    """

    var planes: Int
    var H: Int
    var W: Int
    var OH: Int
    var OW: Int
    var k0: Int
    var k1: Int
    var s0: Int
    var s1: Int
    var p0: Int
    var p1: Int
    var d0: Int
    var d1: Int
    var count_pad: Int  # whether a mean counts the padding

    @always_inline
    def per_task(self) -> Int:
        """How many planes make one task."""
        return lines_per_task(self.H * self.W)

    @always_inline
    def tasks(self) -> Int:
        return ceildiv(self.planes, self.per_task())

    @always_inline
    def first_inside(self) -> Int:
        """The first window of a row that has no column in the padding."""
        return min(ceildiv(self.p1, self.s1), self.OW)

    @always_inline
    def last_inside(self) -> Int:
        """The end of those windows."""
        var last = (self.W - 1 + self.p1 - (self.k1 - 1) * self.d1) // self.s1 + 1
        return max(self.first_inside(), min(last, self.OW))

    @always_inline
    def columns[
        T: DType, w: Int
    ](self, row: Buffer[T], start: Int) -> SIMD[T, w]:
        """What w windows side by side see: every s1-th element of a row from `start`.

        Behind the end of the row there is something without meaning.
        """
        comptime if w == 1:
            return SIMD[T, w](row[start])
        if self.s1 == 1:
            return load_part[w](row, start, self.W, 0)
        if self.s1 == 2:
            var pairs = load_part[2 * w](row, start, self.W, 0)
            return rebind[SIMD[T, w]](pairs.deinterleave()[0])
        var out_ = SIMD[T, w](0)
        comptime for lane in range(w):
            out_[lane] = row[min(start + lane * self.s1, self.W - 1)]
        return out_


@always_inline
def windows_in(a: Arguments, i: Int) -> Windows:
    """The numbers in array i."""
    return a.address(i).unsafe_bitcast[Windows]()[]


trait Pooling(TrivialRegisterPassable):
    """What becomes of the windows of a row."""

    def windows[w: Int](self, plane: Int, oh: Int, ow: Int, n: Int):
        """Make w windows from (oh, ow) on, and write those before column n."""
        ...


@always_inline
def each_row[P: Pooling, w: Int](pooling: P, windows: Windows, task: Int):
    """Make all windows of the planes of a task."""
    var first = task * windows.per_task()
    var left = windows.first_inside()
    var right = windows.last_inside()
    for plane in range(first, min(first + windows.per_task(), windows.planes)):
        for oh in range(windows.OH):
            for ow in range(left):
                pooling.windows[1](plane, oh, ow, windows.OW)
            for ow in range(left, right, w):
                pooling.windows[w](plane, oh, ow, right)
            for ow in range(right, windows.OW):
                pooling.windows[1](plane, oh, ow, windows.OW)


# ------------------------------------------------------------------------------ maximum


@always_inline
def beats[
    T: DType, w: Int
](second: SIMD[T, w], first: SIMD[T, w]) -> SIMD[DType.bool, w]:
    """Whether the second of two numbers is the maximum; NaN is the largest."""
    return second.gt(first) | (~second.eq(second) & first.eq(first))


@fieldwise_init
struct MaxPool[T: DType](Kernel, Pooling):
    """Maxima of windows and their places.

    # x [P, H, W] -> z [P, OH, OW], index [P, OH, OW]

        for p, oh, ow, kh, kw:
            z[p, oh, ow] = max(itself, x[p, oh*s0 - p0 + kh*d0, ow*s1 - p1 + kw*d1])

    The first of equal maxima in row-major order wins. What a window keeps is a choice
    between two numbers, without a branch.
    """

    var x: Buffer[Self.T]
    var z: Buffer[Self.T]
    var index: Places
    var o: Windows

    def run(self, task: Int):
        each_row[Self, simd_width_of[Self.T]()](self, self.o, task)

    @always_inline
    def windows[w: Int](self, plane: Int, oh: Int, ow: Int, n: Int):
        var o = self.o
        var best = SIMD[Self.T, w](-inf[Self.T]())
        var place = SIMD[DType.int32, w](-1)
        for kh in range(o.k0):
            var h = oh * o.s0 - o.p0 + kh * o.d0
            if h < 0 or h >= o.H:
                continue
            var row = self.x.at((plane * o.H + h) * o.W)
            for kw in range(o.k1):
                var start = ow * o.s1 - o.p1 + kw * o.d1
                comptime if w == 1:
                    if start < 0 or start >= o.W:
                        continue
                var value = o.columns[Self.T, w](row, start)
                var here = iota[DType.int32, w]() * Int32(o.s1) + Int32(h * o.W + start)
                var take = beats(value, best) | place.lt(0)
                best = take.select(value, best)
                place = take.select(here, place)
        var at = (plane * o.OH + oh) * o.OW
        store_part(self.z.at(at), ow, n, best)
        place = max(place, 0)  # where there was padding alone
        store_part(self.index.at(at), ow, n, place.cast[DType.int64]())


@fieldwise_init
struct MaxPoolBackward[T: DType](Kernel):
    """dx[p, index[p, i]] += grad[p, i]

    # grad [P, OH * OW], index [P, OH * OW] -> dx [P, H * W]; a task is some planes
    """

    var grad: Buffer[Self.T]
    var index: Places
    var dx: Buffer[Self.T]
    var o: Windows

    def run(self, task: Int):
        var size = self.o.H * self.o.W
        var outputs = self.o.OH * self.o.OW
        var first = task * self.o.per_task()
        var last = min(first + self.o.per_task(), self.o.planes)
        fill(self.dx.at(first * size), (last - first) * size, 0)
        for plane in range(first, last):
            var dx = self.dx.at(plane * size)
            for i in range(plane * outputs, (plane + 1) * outputs):
                dx[Int(self.index[i])] += self.grad[i]


def run_max[T: DType](team: Object, a: Arguments):
    var o = windows_in(a, 3)
    var kernel = MaxPool[T](
        a.buffer[T](0), a.buffer[T](1), a.buffer[DType.int64](2), o
    )
    parallel_for(Team(team), o.tasks(), kernel)


@export
def max_pool2d(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(x, out, index, numbers)"""
    return by_float[run_max](team, arguments, 0)


def run_max_backward[T: DType](team: Object, a: Arguments):
    var o = windows_in(a, 3)
    var kernel = MaxPoolBackward[T](
        a.buffer[T](0), a.buffer[DType.int64](1), a.buffer[T](2), o
    )
    parallel_for(Team(team), o.tasks(), kernel)


@export
def max_pool2d_backward(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """(grad, index, dx, numbers)"""
    return by_float[run_max_backward](team, arguments, 0)


# --------------------------------------------------------------------------------- mean


@always_inline
def rows_inside(o: Windows, oh: Int) -> Int:
    """How many rows of a window are not in the padding."""
    var top = oh * o.s0 - o.p0
    return min(top + o.k0, o.H) - max(top, 0)


@always_inline
def columns_inside(o: Windows, ow: Int) -> Int:
    """How many columns of a window are not in the padding."""
    var left = ow * o.s1 - o.p1
    return min(left + o.k1, o.W) - max(left, 0)


@fieldwise_init
struct AvgPool[T: DType](Kernel, Pooling):
    """Means of windows.

    # x [P, H, W] -> z [P, OH, OW]

        for p, oh, ow:  z = sum of the window's x / how many it counts
    """

    var x: Buffer[Self.T]
    var z: Buffer[Self.T]
    var o: Windows

    def run(self, task: Int):
        each_row[Self, simd_width_of[Self.T]()](self, self.o, task)

    @always_inline
    def windows[w: Int](self, plane: Int, oh: Int, ow: Int, n: Int):
        var o = self.o
        var total = SIMD[Self.T, w](0)
        var top = oh * o.s0 - o.p0
        for h in range(max(top, 0), min(top + o.k0, o.H)):
            var row = self.x.at((plane * o.H + h) * o.W)
            for kw in range(o.k1):
                var start = ow * o.s1 - o.p1 + kw
                comptime if w == 1:
                    if start < 0 or start >= o.W:
                        continue
                total += o.columns[Self.T, w](row, start)
        var counted = o.k0 * o.k1
        if o.count_pad == 0:
            counted = rows_inside(o, oh) * columns_inside(o, ow)
        var z = self.z.at((plane * o.OH + oh) * o.OW)
        store_part(z, ow, n, total / Scalar[Self.T](counted))


@fieldwise_init
struct AvgPoolBackward[T: DType](Kernel):
    """Each window's gradient, divided among its elements; a task is some planes.

    # grad [P, OH, OW] -> dx [P, H, W]
    """

    var grad: Buffer[Self.T]
    var dx: Buffer[Self.T]
    var o: Windows

    def run(self, task: Int):
        var size = self.o.H * self.o.W
        var first = task * self.o.per_task()
        var last = min(first + self.o.per_task(), self.o.planes)
        fill(self.dx.at(first * size), (last - first) * size, 0)
        for plane in range(first, last):
            for oh in range(self.o.OH):
                var grad = self.grad.at((plane * self.o.OH + oh) * self.o.OW)
                self.row(grad, self.dx.at(plane * size), oh)

    @always_inline
    def row(self, grad: Buffer[Self.T], dx: Buffer[Self.T], oh: Int):
        var o = self.o
        var top = oh * o.s0 - o.p0
        for ow in range(o.OW):
            var left = ow * o.s1 - o.p1
            var counted = o.k0 * o.k1
            if o.count_pad == 0:
                counted = rows_inside(o, oh) * columns_inside(o, ow)
            var each = grad[ow] / Scalar[Self.T](counted)
            for h in range(max(top, 0), min(top + o.k0, o.H)):
                for w in range(max(left, 0), min(left + o.k1, o.W)):
                    dx[h * o.W + w] += each


def run_avg[T: DType](team: Object, a: Arguments):
    var o = windows_in(a, 2)
    parallel_for(Team(team), o.tasks(), AvgPool[T](a.buffer[T](0), a.buffer[T](1), o))


@export
def avg_pool2d(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(x, out, numbers)"""
    return by_float[run_avg](team, arguments, 0)


def run_avg_backward[T: DType](team: Object, a: Arguments):
    var o = windows_in(a, 2)
    var kernel = AvgPoolBackward[T](a.buffer[T](0), a.buffer[T](1), o)
    parallel_for(Team(team), o.tasks(), kernel)


@export
def avg_pool2d_backward(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """(grad, dx, numbers)"""
    return by_float[run_avg_backward](team, arguments, 0)
