"""Bias and activation: what follows the matrix product of a layer, in one pass.

With this file `linear.py` can add a bias to every row of a matrix and apply an operator
to the sums, or carry a gradient back through that operator (`bias_rows`).

The operator is not compiled here a second time: the kernels are given the address of
its row function, from `elementwise.mojo`, and call it on the sums of a whole task,
which lie one behind the other. Those 16 kB stay in the first-level cache in between, so
memory is passed over once.
"""

from std.math import ceildiv
from std.sys import simd_width_of

from bridge import Address, Arguments, Buffer, Object, by_number
from lines import load_part, lines_per_task, store_part
from parallel import Kernel, Team, parallel_for

comptime MapRow = def(Address, Address, Int) thin -> None
comptime ZipRow = def(Address, Address, Address, Int) thin -> None


@fieldwise_init
struct BiasRows[T: DType](Kernel):
    """out[r, j] = fn(x[r, j] + bias[j]), or fn(grad[r, j], x[r, j] + bias[j]).

    # x [R, N], grad [R, N], bias [N] -> out [R, N], which may be x

    A task is some whole rows: first all their sums, then the operator on all of them.
    `map` and `zip` are addresses of row functions; 0 for none.
    """

    var grad: Buffer[Self.T]
    var x: Buffer[Self.T]
    var bias: Buffer[Self.T]
    var out_: Buffer[Self.T]
    var map: Int
    var zip: Int
    var rows: Int
    var n: Int

    def run(self, task: Int):
        var first = task * lines_per_task(self.n)
        var last = min(first + lines_per_task(self.n), self.rows)
        for r in range(first, last):
            self.add_bias(self.x.at(r * self.n), self.out_.at(r * self.n))
        var sums = self.out_.at(first * self.n).address()
        var count = (last - first) * self.n
        if self.map != 0:
            var word = self.map
            Pointer(to=word).unsafe_bitcast[MapRow]()[](sums, sums, count)
            _ = word
        if self.zip != 0:
            var word = self.zip
            var grad = self.grad.at(first * self.n).address()
            Pointer(to=word).unsafe_bitcast[ZipRow]()[](grad, sums, sums, count)
            _ = word

    @always_inline
    def add_bias(self, x: Buffer[Self.T], z: Buffer[Self.T]):
        comptime w = simd_width_of[Self.T]()
        for j in range(0, self.n, w):
            var sum = load_part[w](x, j, self.n, 0) + load_part[w](
                self.bias, j, self.n, 0
            )
            store_part(z, j, self.n, sum)


def run_bias_rows[T: DType](team: Object, a: Arguments):
    var n = a.size(2)
    var rows = a.size(3) // n
    var kernel = BiasRows[T](
        a.buffer[T](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](3), a.integer(4),
        a.integer(5), rows, n,
    )
    parallel_for(Team(team), ceildiv(rows, lines_per_task(n)), kernel)


@export
def bias_rows(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(grad, x, bias, out, map, zip): see `BiasRows`"""
    return by_number[run_bias_rows](team, arguments, 3)
