"""Optimizer steps: one pass over memory for each parameter.

With this file the backend can take a step of SGD (`sgd`, `sgd_momentum`) or of Adam and
AdamW (`adam`), in place. Each number is loaded once, updated in registers and stored
once. All factors come rounded to the parameters' type.
"""

from std.math import ceildiv, sqrt
from std.sys import simd_width_of

from bridge import Arguments, Buffer, Object, by_float, load_some, store_some
from parallel import Kernel, Team, parallel_for

comptime PER_TASK = 16384  # elements in a task


trait Step(TrivialRegisterPassable):
    """An update of a vector of elements from i on, of which those below n exist."""

    comptime T: DType

    def update[w: Int, whole: Bool](self, i: Int, n: Int):
        """Load, update and store elements i to i + w - 1."""
        ...


@always_inline
def fetch[T: DType, w: Int, whole: Bool](x: Buffer[T], i: Int, n: Int) -> SIMD[T, w]:
    """A vector, or what is left of one."""
    comptime if whole:
        return x.load[w](i)
    return load_some[T, w](x, i, n)


@always_inline
def put[
    T: DType, w: Int, whole: Bool
](x: Buffer[T], i: Int, n: Int, value: SIMD[T, w]):
    """Write a vector, or what is left of one."""
    comptime if whole:
        x.store[w](i, value)
    else:
        store_some[T, w](x, i, n, value)


@fieldwise_init
struct AllElements[S: Step](Kernel):
    """A step for all elements; a task is PER_TASK of them."""

    var step: Self.S
    var n: Int

    def run(self, task: Int):
        comptime w = simd_width_of[Self.S.T]()
        var last = min(task * PER_TASK + PER_TASK, self.n)
        var whole = task * PER_TASK + (last - task * PER_TASK) // w * w
        for i in range(task * PER_TASK, whole, w):
            self.step.update[w, True](i, last)
        if whole < last:
            self.step.update[w, False](whole, last)


# --------------------------------------------------------------------------- the steps


@fieldwise_init
struct Sgd[D: DType](Step):
    """p -= lr * (grad + weight_decay * p)."""

    comptime T = Self.D

    var p: Buffer[Self.D]
    var grad: Buffer[Self.D]
    var factors: Buffer[Self.D]  # lr, weight_decay

    @always_inline
    def update[w: Int, whole: Bool](self, i: Int, n: Int):
        var p = fetch[Self.D, w, whole](self.p, i, n)
        var g = fetch[Self.D, w, whole](self.grad, i, n) + self.factors[1] * p
        put[Self.D, w, whole](self.p, i, n, p - self.factors[0] * g)


@fieldwise_init
struct SgdMomentum[D: DType](Step):
    """buf = momentum * buf + damp * g; p -= lr * (from_g * g + from_buf * buf).

    g = grad + weight_decay * p. Without Nesterov's idea the step is buf (0 and 1); with
    it, g + momentum * buf (1 and momentum).
    """

    comptime T = Self.D

    var p: Buffer[Self.D]
    var grad: Buffer[Self.D]
    var buf: Buffer[Self.D]
    var factors: Buffer[Self.D]  # lr, momentum, damp, weight_decay, from_g, from_buf

    @always_inline
    def update[w: Int, whole: Bool](self, i: Int, n: Int):
        var f = self.factors
        var p = fetch[Self.D, w, whole](self.p, i, n)
        var g = fetch[Self.D, w, whole](self.grad, i, n) + f[3] * p
        var b = f[1] * fetch[Self.D, w, whole](self.buf, i, n) + f[2] * g
        put[Self.D, w, whole](self.buf, i, n, b)
        put[Self.D, w, whole](self.p, i, n, p - f[0] * (f[4] * g + f[5] * b))


@fieldwise_init
struct Adam[D: DType](Step):
    """Move the averages m and v toward g and g * g, and p along m / sqrt(v).

    g = scale * grad + decay * p (Adam), or p is first multiplied by `shrink` (AdamW).
    """

    comptime T = Self.D

    var p: Buffer[Self.D]
    var grad: Buffer[Self.D]
    var m: Buffer[Self.D]
    var v: Buffer[Self.D]
    var factors: Buffer[Self.D]
    # step_size, 1 - beta1, beta2, 1 - beta2, eps, 1 / sqrt(1 - beta2 ** step), decay,
    # shrink, scale

    @always_inline
    def update[w: Int, whole: Bool](self, i: Int, n: Int):
        var f = self.factors
        var x = fetch[Self.D, w, whole](self.p, i, n) * f[7]
        var g = f[8] * fetch[Self.D, w, whole](self.grad, i, n) + f[6] * x
        var m = fetch[Self.D, w, whole](self.m, i, n)
        m = m + f[1] * (g - m)
        var v = f[2] * fetch[Self.D, w, whole](self.v, i, n) + f[3] * g * g
        put[Self.D, w, whole](self.m, i, n, m)
        put[Self.D, w, whole](self.v, i, n, v)
        comptime assert Self.D.is_floating_point(), "parameters are floats"
        var p = x - f[0] * m / (sqrt(v) * f[5] + f[4])
        put[Self.D, w, whole](self.p, i, n, p)


# ------------------------------------------------------------------- called from Python


def take[S: Step](team: Object, step: S, n: Int):
    parallel_for(Team(team), ceildiv(n, PER_TASK), AllElements(step, n))


def run_sgd[T: DType](team: Object, a: Arguments):
    take(team, Sgd(a.buffer[T](0), a.buffer[T](1), a.buffer[T](2)), a.size(0))


@export
def sgd(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(p, grad, factors), see `Sgd`."""
    return by_float[run_sgd](team, arguments, 0)


def run_sgd_momentum[T: DType](team: Object, a: Arguments):
    var step = SgdMomentum(
        a.buffer[T](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](3)
    )
    take(team, step, a.size(0))


@export
def sgd_momentum(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(p, grad, buf, factors), see `SgdMomentum`."""
    return by_float[run_sgd_momentum](team, arguments, 0)


def run_adam[T: DType](team: Object, a: Arguments):
    var step = Adam(
        a.buffer[T](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](3), a.buffer[T](4)
    )
    take(team, step, a.size(0))


@export
def adam(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(p, grad, m, v, factors), see `Adam`."""
    return by_float[run_adam](team, arguments, 0)
