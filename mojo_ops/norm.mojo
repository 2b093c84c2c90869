"""Layer norm and batch norm, forward and backward.

With this file the backend can bring each row (`layer_norm`) or each channel
(`batch_norm`) to mean 0 and variance 1, and take the gradients.

Mean and variance are taken in two passes, sum((x - mean)^2) after the mean is known:
sum(x^2) - sum(x)^2 / n needs one pass, but loses all digits in float32 where the mean
is large against the deviation. The second pass reads from the cache.

Sums over rows (the gradients for weight and bias) are cut into blocks whose number
depends on the shape alone, and the blocks are added in order: the result is the same
for any number of threads.
"""

from std.math import ceildiv, sqrt
from std.sys import simd_width_of

from bridge import Arguments, Buffer, Object, by_float
from lines import fill, load_part, lines_per_task, store_part, sum_of
from parallel import Kernel, Team, parallel_for

comptime f32 = DType.float32
comptime f64 = DType.float64
comptime SERIAL = 4096  # elements that one thread does alone

# ----------------------------------------------------------------------------- one line


@always_inline
def squares_of[T: DType](x: Buffer[T], n: Int, mean: Scalar[T]) -> Scalar[T]:
    """The sum of (x[i] - mean)^2."""
    comptime w = simd_width_of[T]()
    var total = SIMD[T, w](0)
    for i in range(0, n, w):
        var away = load_part[w](x, i, n, mean) - mean
        total = away.fma(away, total)
    return total.reduce_add()


@always_inline
def products_of[
    T: DType
](grad: Buffer[T], x: Buffer[T], n: Int, mean: Scalar[T]) -> Scalar[T]:
    """The sum of grad[i] * (x[i] - mean)."""
    comptime w = simd_width_of[T]()
    var total = SIMD[T, w](0)
    for i in range(0, n, w):
        var away = load_part[w](x, i, n, mean) - mean
        total = away.fma(load_part[w](grad, i, n, 0), total)
    return total.reduce_add()


# --------------------------------------------------------------------------- layer norm


@fieldwise_init
struct LayerNorm[T: DType](Kernel):
    """Normalize rows.

    # x [R, D], weight [D], bias [D] -> z [R, D], mean [R], rstd [R]

        for r:  mean = sum(x[r]) / D;  rstd = 1 / sqrt(sum((x[r] - mean)^2) / D + eps)
            for i:  z[r, i] = (x[r, i] - mean) * rstd * weight[i] + bias[i]

    A task is some whole rows; a row of a few thousand numbers stays in the first-level
    cache for the second and third pass.
    """

    var x: Buffer[Self.T]
    var weight: Buffer[Self.T]
    var bias: Buffer[Self.T]
    var z: Buffer[Self.T]
    var mean: Buffer[Self.T]
    var rstd: Buffer[Self.T]
    var eps: Float64
    var rows: Int
    var D: Int

    def run(self, task: Int):
        var per_task = lines_per_task(self.D)
        for r in range(task * per_task, min(task * per_task + per_task, self.rows)):
            var x = self.x.at(r * self.D)
            var size = Float64(self.D)
            var middle = (sum_of(x, self.D).cast[f64]() / size).cast[Self.T]()
            var variance = squares_of(x, self.D, middle).cast[f64]() / size
            var scale = (1 / sqrt(variance + self.eps)).cast[Self.T]()
            self.mean[r] = middle
            self.rstd[r] = scale
            self.row(x, self.z.at(r * self.D), middle, scale)

    @always_inline
    def row(
        self, x: Buffer[Self.T], z: Buffer[Self.T], middle: Scalar[Self.T],
        scale: Scalar[Self.T],
    ):
        comptime w = simd_width_of[Self.T]()
        for i in range(0, self.D, w):
            var y = (load_part[w](x, i, self.D, 0) - middle) * scale
            var weight = load_part[w](self.weight, i, self.D, 0)
            var bias = load_part[w](self.bias, i, self.D, 0)
            store_part(z, i, self.D, y * weight + bias)


@fieldwise_init
struct LayerNormBackward[T: DType](Kernel):
    """The three gradients of `LayerNorm` in one pass over the rows.

    # grad [R, D], x [R, D] -> dx [R, D]; partial [blocks, 2, D]: sums of dw and db

        dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),   g = grad * weight
        dw += grad * xhat;  db += grad,                      xhat = (x - mean) * rstd

    A task is a block of rows, with its own sums for dw and db, which stay in the cache.
    A pass over columns instead would read grad and x a second time.
    """

    var grad: Buffer[Self.T]
    var x: Buffer[Self.T]
    var mean: Buffer[Self.T]
    var rstd: Buffer[Self.T]
    var weight: Buffer[Self.T]
    var dx: Buffer[Self.T]
    var partial: Buffer[Self.T]
    var rows: Int
    var D: Int
    var blocks: Int

    def run(self, task: Int):
        var dw = self.partial.at(task * 2 * self.D)
        fill(dw, 2 * self.D, 0)
        var last = (task + 1) * self.rows // self.blocks
        for r in range(task * self.rows // self.blocks, last):
            self.row(r, dw, dw.at(self.D))

    @always_inline
    def row(self, r: Int, dw: Buffer[Self.T], db: Buffer[Self.T]):
        """One row's dx, and its terms of dw and db, added to what is there."""
        comptime w = simd_width_of[Self.T]()
        var n = self.D
        var grad = self.grad.at(r * n)
        var x = self.x.at(r * n)
        var middle = self.mean[r]
        var scale = self.rstd[r]
        var totals = SIMD[Self.T, w](0)
        var products = SIMD[Self.T, w](0)
        for i in range(0, n, w):
            var g = load_part[w](grad, i, n, 0) * load_part[w](self.weight, i, n, 0)
            totals += g
            products = g.fma(load_part[w](x, i, n, 0) - middle, products)
        var size = Scalar[Self.T](n)
        var shift = totals.reduce_add() / size
        var slope = products.reduce_add() * scale * scale / size
        for i in range(0, n, w):
            var g = load_part[w](grad, i, n, 0)
            var away = load_part[w](x, i, n, 0) - middle
            store_part(dw, i, n, load_part[w](dw, i, n, 0) + g * (away * scale))
            store_part(db, i, n, load_part[w](db, i, n, 0) + g)
            var inner = g * load_part[w](self.weight, i, n, 0) - shift
            store_part(self.dx.at(r * n), i, n, scale * (inner - away * slope))


@always_inline
def add_blocks[T: DType](partial: Buffer[T], blocks: Int, n: Int, z: Buffer[T]):
    """z[i] = the sum of partial[block, 0, i] over the blocks, in order."""
    comptime w = simd_width_of[T]()
    for i in range(0, n, w):
        var total = SIMD[T, w](0)
        for block in range(blocks):
            total += load_part[w](partial.at(block * 2 * n), i, n, 0)
        store_part(z, i, n, total)


def run_layer_norm[T: DType](team: Object, a: Arguments):
    var rows = a.size(5)
    var D = a.size(1)
    var kernel = LayerNorm[T](
        a.buffer[T](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](4),
        a.buffer[T](5), a.buffer[T](6), a.number(3), rows, D,
    )
    parallel_for(Team(team), ceildiv(rows, lines_per_task(D)), kernel)


@export
def layer_norm(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(x, weight, bias, eps, out, mean, rstd)"""
    return by_float[run_layer_norm](team, arguments, 0)


def run_layer_norm_backward[T: DType](team: Object, a: Arguments):
    var rows = a.size(2)
    var D = a.size(4)
    var blocks = a.size(6)
    var partial = a.buffer[T](6)
    var kernel = LayerNormBackward[T](
        a.buffer[T](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](3),
        a.buffer[T](4), a.buffer[T](5), partial, rows, D, blocks,
    )
    parallel_for(Team(team), blocks, kernel, rows * D < SERIAL)
    add_blocks(partial, blocks, D, a.buffer[T](7))
    add_blocks(partial.at(D), blocks, D, a.buffer[T](8))


@export
def layer_norm_backward(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """(grad, x, mean, rstd, weight, dx, partial, dw, db)"""
    return by_float[run_layer_norm_backward](team, arguments, 0)


# --------------------------------------------------------------------------- batch norm


@fieldwise_init
struct BatchNorm[T: DType](Kernel):
    """Normalize channels.

    # x [N, C, L], weight [C], bias [C] -> z [N, C, L], mean [C], variance [C]

        for c:  mean = sum(x[:, c]) / (N L);  variance = sum((x[:, c] - mean)^2) / (N L)
            for n, l:  z[n, c, l] = (x[n, c, l] - mean) / sqrt(variance + eps)
                                    * weight[c] + bias[c]

    A task is a channel. A line of L numbers is added up in T, the lines in float64. The
    N lines of a channel stay in the second-level cache between the passes.
    """

    var x: Buffer[Self.T]
    var weight: Buffer[Self.T]
    var bias: Buffer[Self.T]
    var z: Buffer[Self.T]
    var mean: Buffer[Self.T]
    var variance: Buffer[Self.T]
    var eps: Float64
    var N: Int
    var C: Int
    var L: Int

    def run(self, c: Int):
        var size = Float64(self.N * self.L)
        var total = Float64(0)
        for n in range(self.N):
            total += sum_of(self.x.at((n * self.C + c) * self.L), self.L).cast[f64]()
        var middle = (total / size).cast[Self.T]()
        total = 0
        for n in range(self.N):
            var x = self.x.at((n * self.C + c) * self.L)
            total += squares_of(x, self.L, middle).cast[f64]()
        self.mean[c] = middle
        self.variance[c] = (total / size).cast[Self.T]()
        var weight = self.weight[c].cast[f64]()
        var scale = (weight / sqrt(total / size + self.eps)).cast[Self.T]()
        for n in range(self.N):
            self.line((n * self.C + c) * self.L, middle, scale, self.bias[c])

    @always_inline
    def line(
        self, at: Int, middle: Scalar[Self.T], scale: Scalar[Self.T],
        bias: Scalar[Self.T],
    ):
        comptime w = simd_width_of[Self.T]()
        for i in range(0, self.L, w):
            var y = (load_part[w](self.x.at(at), i, self.L, 0) - middle) * scale
            store_part(self.z.at(at), i, self.L, y + bias)


@fieldwise_init
struct BatchNormBackward[T: DType](Kernel):
    """The three gradients of `BatchNorm`.

    # grad [N, C, L], x [N, C, L] -> dx [N, C, L], dw [C], db [C]

        for c:  db = sum(grad);  dw = sum(grad * xhat),  xhat = (x - mean) / deviation
            for n, l:  dx = weight / deviation * (grad - db / (N L) - xhat * dw / (N L))

    A task is a channel, in two passes; nothing is shared.
    """

    var grad: Buffer[Self.T]
    var x: Buffer[Self.T]
    var mean: Buffer[Self.T]
    var variance: Buffer[Self.T]
    var weight: Buffer[Self.T]
    var dx: Buffer[Self.T]
    var dw: Buffer[Self.T]
    var db: Buffer[Self.T]
    var eps: Float64
    var N: Int
    var C: Int
    var L: Int

    def run(self, c: Int):
        var size = Float64(self.N * self.L)
        var total = Float64(0)
        var product = Float64(0)
        for n in range(self.N):
            var at = (n * self.C + c) * self.L
            var grad = self.grad.at(at)
            var x = self.x.at(at)
            total += sum_of(grad, self.L).cast[f64]()
            product += products_of(grad, x, self.L, self.mean[c]).cast[f64]()
        var scale = 1 / sqrt(self.variance[c].cast[f64]() + self.eps)
        self.dw[c] = (product * scale).cast[Self.T]()
        self.db[c] = total.cast[Self.T]()
        var shift = (total / size).cast[Self.T]()
        var slope = (product * scale * scale / size).cast[Self.T]()
        var factor = (self.weight[c].cast[f64]() * scale).cast[Self.T]()
        for n in range(self.N):
            var at = (n * self.C + c) * self.L
            self.line(at, self.mean[c], factor, shift, slope)

    @always_inline
    def line(
        self, at: Int, middle: Scalar[Self.T], factor: Scalar[Self.T],
        shift: Scalar[Self.T], slope: Scalar[Self.T],
    ):
        comptime w = simd_width_of[Self.T]()
        for i in range(0, self.L, w):
            var away = load_part[w](self.x.at(at), i, self.L, 0) - middle
            var inner = load_part[w](self.grad.at(at), i, self.L, 0) - shift
            store_part(self.dx.at(at), i, self.L, factor * (inner - away * slope))


def run_batch_norm[T: DType](team: Object, a: Arguments):
    var C = a.size(5)
    var L = a.integer(7)
    var kernel = BatchNorm[T](
        a.buffer[T](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](4),
        a.buffer[T](5), a.buffer[T](6), a.number(3), a.size(0) // (C * L), C, L,
    )
    parallel_for(Team(team), C, kernel, a.size(0) < SERIAL)


@export
def batch_norm(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(x, weight, bias, eps, out, mean, variance, L)"""
    return by_float[run_batch_norm](team, arguments, 0)


def run_batch_norm_backward[T: DType](team: Object, a: Arguments):
    var C = a.size(2)
    var L = a.integer(9)
    var kernel = BatchNormBackward[T](
        a.buffer[T](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](3),
        a.buffer[T](4), a.buffer[T](6), a.buffer[T](7), a.buffer[T](8), a.number(5),
        a.size(0) // (C * L), C, L,
    )
    parallel_for(Team(team), C, kernel, a.size(0) < SERIAL)


@export
def batch_norm_backward(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """(grad, x, mean, variance, weight, eps, dx, dw, db, L)"""
    return by_float[run_batch_norm_backward](team, arguments, 0)
