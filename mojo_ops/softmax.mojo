"""Softmax, log-softmax and cross-entropy, forward and backward.

With this file the backend can turn rows of scores into probabilities (`softmax`) or
into their logarithms (`log_softmax`), compare them with target classes
(`cross_entropy`), and bring the gradients back.

Whatever runs along other dimensions has been laid out as rows by the launcher. A row is
finished by one function (`softmax_row` and its neighbours), a task is as many rows as
make about `PER_TASK` elements. Rows do not touch each other, so results do not depend
on the number of threads.

A row is read two or three times, from the first-level cache after the first time. The
exponential is a polynomial on 16 numbers at once (`scalar_math.mojo`); it takes most of
the time. The maximum is subtracted first, so nothing overflows; a row that is -inf
everywhere has no maximum to subtract and becomes NaN, as in PyTorch.
"""

from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.numerics import inf

from bridge import FLOAT32, Arguments, Buffer, Object, by_float, done, integer
from lines import fill, load_part, maximum_of, lines_per_task, store_part, sum_of
from parallel import Kernel, Team, parallel_for
from scalar_math import exp_to_add as exp, f32, f64, log

comptime Row = def[T: DType](Buffer[T], Buffer[T], Buffer[T], Int) thin -> None


# ----------------------------------------------------------------------------- one row


@always_inline
def exp_sum[T: DType](x: Buffer[T], n: Int, top: Scalar[T]) -> Scalar[T]:
    """The sum of exp(x[i] - top)."""
    comptime w = simd_width_of[T]()
    var total = SIMD[T, w](0)
    for i in range(0, n, w):
        total += exp(load_part[w](x, i, n, -inf[T]()) - top)
    return total.reduce_add()


def softmax_row[T: DType](x: Buffer[T], unused: Buffer[T], z: Buffer[T], n: Int):
    """z[i] = exp(x[i] - max) / sum over j of exp(x[j] - max)"""
    comptime w = simd_width_of[T]()
    var top = maximum_of(x, n)
    var total = SIMD[T, w](0)
    for i in range(0, n, w):
        var value = exp(load_part[w](x, i, n, -inf[T]()) - top)
        total += value
        store_part(z, i, n, value)
    var scale = 1 / total.reduce_add()
    for i in range(0, n, w):
        store_part(z, i, n, load_part[w](z, i, n, 0) * scale)


def softmax_backward_row[
    T: DType
](grad: Buffer[T], out_: Buffer[T], dx: Buffer[T], n: Int):
    """dx[i] = out[i] * (grad[i] - sum over j of grad[j] * out[j])"""
    comptime w = simd_width_of[T]()
    var total = SIMD[T, w](0)
    for i in range(0, n, w):
        total += load_part[w](grad, i, n, 0) * load_part[w](out_, i, n, 0)
    var dot = total.reduce_add()
    for i in range(0, n, w):
        var g = load_part[w](grad, i, n, 0) - dot
        store_part(dx, i, n, load_part[w](out_, i, n, 0) * g)


def log_softmax_row[T: DType](x: Buffer[T], unused: Buffer[T], z: Buffer[T], n: Int):
    """z[i] = (x[i] - max) - log(sum over j of exp(x[j] - max)), in this order: x[i] and
    max may be large and close to each other, and their sum with a logarithm would be
    rounded."""
    comptime w = simd_width_of[T]()
    var top = maximum_of(x, n)
    var log_total = log[T, 1](exp_sum(x, n, top))
    for i in range(0, n, w):
        store_part(z, i, n, (load_part[w](x, i, n, 0) - top) - log_total)


def log_softmax_backward_row[
    T: DType
](grad: Buffer[T], out_: Buffer[T], dx: Buffer[T], n: Int):
    """dx[i] = grad[i] - exp(out[i]) * sum over j of grad[j]"""
    comptime w = simd_width_of[T]()
    var total = sum_of(grad, n)
    for i in range(0, n, w):
        var y = exp(load_part[w](out_, i, n, 0))
        store_part(dx, i, n, load_part[w](grad, i, n, 0) - y * total)


# ---------------------------------------------------------------------------- all rows


@fieldwise_init
struct Rows[T: DType, row: Row](Kernel):
    """# x [R, n], y [R, n] -> z [R, n]: row(x[r], y[r], z[r]) for all r."""

    var x: Buffer[Self.T]
    var y: Buffer[Self.T]
    var z: Buffer[Self.T]
    var rows: Int
    var n: Int

    def run(self, task: Int):
        var per_task = lines_per_task(self.n)
        for r in range(task * per_task, min(task * per_task + per_task, self.rows)):
            var at = r * self.n
            Self.row[Self.T](self.x.at(at), self.y.at(at), self.z.at(at), self.n)


def run_rows[T: DType, row: Row](team: Object, a: Arguments, out_: Int):
    """The arguments before `out_` are one operand or two, the next one is n."""
    var n = a.integer(out_ + 1)
    var rows = a.size(out_) // n
    var kernel = Rows[T, row](
        a.buffer[T](0), a.buffer[T](out_ - 1), a.buffer[T](out_), rows, n
    )
    parallel_for(Team(team), ceildiv(rows, lines_per_task(n)), kernel)


def along_rows[row: Row](team: Object, a: Arguments, out_: Int) -> Object:
    if a.type(0) == FLOAT32:
        run_rows[f32, row](team, a, out_)
    else:
        run_rows[f64, row](team, a, out_)
    return done()


@export
def softmax(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, out, n)"""
    return along_rows[softmax_row](team, arguments, 1)


@export
def softmax_backward(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(grad, out, dx, n)"""
    return along_rows[softmax_backward_row](team, arguments, 2)


@export
def log_softmax(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, out, n)"""
    return along_rows[log_softmax_row](team, arguments, 1)


@export
def log_softmax_backward(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """(grad, out, dx, n)"""
    return along_rows[log_softmax_backward_row](team, arguments, 2)


# ----------------------------------------------------------------------- cross-entropy


@fieldwise_init
struct CrossEntropy[T: DType](Kernel):
    """The loss of each row, without writing a softmax.

    # logits [N, C], target [N] -> losses [N], logsumexp [N]

        for n:  logsumexp[n] = log(sum over c of exp(logits[n, c]))
                losses[n] = logsumexp[n] - logits[n, target[n]]

    A task makes whole rows. Softmax, logarithm and choice would write and read [N, C]
    numbers three times; this reads them once from memory.
    """

    var logits: Buffer[Self.T]
    var target: Buffer[DType.int64]
    var losses: Buffer[Self.T]
    var logsumexp: Buffer[Self.T]
    var rows: Int
    var classes: Int
    var ignore_index: Int

    def run(self, task: Int):
        var per_task = lines_per_task(self.classes)
        for r in range(task * per_task, min(task * per_task + per_task, self.rows)):
            var row = self.logits.at(r * self.classes)
            var top = maximum_of(row, self.classes)
            var log_total = log[Self.T, 1](exp_sum(row, self.classes, top))
            self.logsumexp[r] = top + log_total
            var wanted = Int(self.target[r])
            self.losses[r] = 0
            if wanted != self.ignore_index:
                self.losses[r] = log_total - (row[wanted] - top)


@fieldwise_init
struct CrossEntropyBackward[T: DType](Kernel):
    """The gradient for the logits, with one exponential for each.

    # grad [N], logits [N, C], target [N], logsumexp [N] -> dx [N, C]

        for n, c:  dx[n, c] = grad[n] * (exp(logits[n, c] - logsumexp[n])
                                         - (1 if c == target[n] else 0))

    A task makes whole rows. The forward pass kept one number a row, not a softmax.
    """

    var grad: Buffer[Self.T]
    var logits: Buffer[Self.T]
    var target: Buffer[DType.int64]
    var logsumexp: Buffer[Self.T]
    var dx: Buffer[Self.T]
    var rows: Int
    var classes: Int
    var ignore_index: Int

    def run(self, task: Int):
        var per_task = lines_per_task(self.classes)
        for r in range(task * per_task, min(task * per_task + per_task, self.rows)):
            var z = self.dx.at(r * self.classes)
            if Int(self.target[r]) == self.ignore_index:
                fill(z, self.classes, 0)
            else:
                self.row(self.logits.at(r * self.classes), z, r)

    @always_inline
    def row(self, x: Buffer[Self.T], z: Buffer[Self.T], r: Int):
        comptime w = simd_width_of[Self.T]()
        var factor = self.grad[r]
        var log_total = self.logsumexp[r]
        for i in range(0, self.classes, w):
            var y = exp(load_part[w](x, i, self.classes, 0) - log_total)
            store_part(z, i, self.classes, factor * y)
        z[Int(self.target[r])] -= factor


@export
def first_bad_target(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(target, C, ignore_index) -> the first n whose target is neither a class nor
    `ignore_index`, or -1"""
    var target = arguments.buffer[DType.int64](0)
    var classes = arguments.integer(1)
    var ignore_index = arguments.integer(2)
    for n in range(arguments.size(0)):
        var wanted = Int(target[n])
        if (wanted < 0 or wanted >= classes) and wanted != ignore_index:
            return integer(n)
    return integer(-1)


def run_cross_entropy[T: DType](team: Object, a: Arguments):
    var rows = a.size(1)
    var classes = a.size(0) // rows
    var kernel = CrossEntropy[T](
        a.buffer[T](0), a.buffer[DType.int64](1), a.buffer[T](3), a.buffer[T](4), rows,
        classes, a.integer(2),
    )
    parallel_for(Team(team), ceildiv(rows, lines_per_task(classes)), kernel)


@export
def cross_entropy(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(logits, target, ignore_index, losses, logsumexp)"""
    return by_float[run_cross_entropy](team, arguments, 0)


def run_cross_entropy_backward[T: DType](team: Object, a: Arguments):
    var rows = a.size(2)
    var classes = a.size(5) // rows
    var kernel = CrossEntropyBackward[T](
        a.buffer[T](0), a.buffer[T](1), a.buffer[DType.int64](2), a.buffer[T](3),
        a.buffer[T](5), rows, classes, a.integer(4),
    )
    parallel_for(Team(team), ceildiv(rows, lines_per_task(classes)), kernel)


@export
def cross_entropy_backward(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """(grad, logits, target, logsumexp, ignore_index, dx)"""
    return by_float[run_cross_entropy_backward](team, arguments, 0)


# --------------------------------------------------------------------------- mean loss


def run_mean_loss[T: DType](team: Object, a: Arguments):
    """mean = sum of losses[n] / count, share = 1 / count, for the n not ignored.

    One thread adds the N numbers up, in float64: there are no more than rows of logits,
    each of which took a hundred times as long.
    """
    var losses = a.buffer[T](0)
    var target = a.buffer[DType.int64](1)
    var total = Float64(0)
    var counted = 0
    for n in range(a.size(1)):
        if Int(target[n]) != a.integer(2):
            total += losses[n].cast[f64]()
            counted += 1
    a.buffer[T](3)[0] = (total / Float64(counted)).cast[T]()
    a.buffer[T](4)[0] = (1 / Float64(counted)).cast[T]()


@export
def mean_loss(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(losses, target, ignore_index, mean, share)"""
    return by_float[run_mean_loss](team, arguments, 0)
