"""Random numbers: counted, not stepped, so that all threads draw one sequence.

With this file the backend can fill tensors with uniform, normal or whole random numbers
(`uniform`, `normal`, `randint`), and drop elements at random (`dropout`).

Block number b of a stream is a function of b and the seed alone (`philox` in
`operators.mojo`): four 32-bit words, for elements 4 b to 4 b + 3. Here 16
blocks are computed side by side in vectors, and their words woven together:

    w0 of 16 blocks   \\
    w1 of 16 blocks    \\   64 words: w0 w1 w2 w3 of block b, then of block b + 1 ...
    w2 of 16 blocks    /
    w3 of 16 blocks   /

Normal numbers take the C library's logarithm, sine and cosine in float64, one number at
a time, so that they are those of every other backend.
"""

from std.ffi import external_call
from std.math import ceildiv, iota, sqrt

from bridge import Arguments, Buffer, Object, by_bytes, by_float
from operators import philox
from parallel import Kernel, Team, parallel_for

comptime f64 = DType.float64

comptime BLOCKS = 16  # side by side
comptime WORDS = 4 * BLOCKS
comptime PER_TASK = 8192  # elements in a task; a multiple of WORDS

comptime UNIFORM = 0
comptime NORMAL = 1
comptime INTEGER = 2
comptime DROPOUT = 3

comptime Words = SIMD[DType.uint64, WORDS]


@always_inline
def words_from(first: UInt64, seed: UInt64) -> Words:
    """The words of blocks first to first + 15, block after block."""
    var w = philox[BLOCKS](iota[DType.uint64, BLOCKS]() + first, seed)
    var woven = w[0].interleave(w[2]).interleave(w[1].interleave(w[3]))
    return rebind[Words](woven)


@always_inline
def box_muller[T: DType](words: Words, mut out_: SIMD[T, WORDS]):
    """Two normal numbers from each two words."""
    comptime for i in range(0, WORDS, 2):
        var fraction = (words[i].cast[f64]() + 1) * 2.0**-32
        var radius = sqrt(-2.0 * external_call["log", Float64](fraction))
        var angle = (2.0 * 3.141592653589793) * (words[i + 1].cast[f64]() * 2.0**-32)
        out_[i] = (radius * external_call["cos", Float64](angle)).cast[T]()
        out_[i + 1] = (radius * external_call["sin", Float64](angle)).cast[T]()


@fieldwise_init
struct Draw[T: DType, kind: Int](Kernel):
    """Fill z with random numbers of one kind; a task is PER_TASK elements."""

    var x: Buffer[Self.T]  # what is dropped; else not used
    var z: Buffer[Self.T]
    var n: Int
    var seed: UInt64
    var offset: UInt64
    var low: Int  # of integers; for dropout, the first word that keeps an element
    var span: Int  # of integers
    var scale: Scalar[Self.T]  # of what dropout keeps

    def run(self, task: Int):
        var first = task * PER_TASK
        for i in range(first, min(first + PER_TASK, self.n), WORDS):
            var words = words_from(self.offset + UInt64(i // 4), self.seed)
            var values = self.values(words)
            if i + WORDS <= self.n:
                self.write(i, values)
            else:
                for j in range(self.n - i):
                    self.write_one(i + j, values[j])

    @always_inline
    def values(self, words: Words) -> SIMD[Self.T, WORDS]:
        """What the words become; for dropout, the factor of each element."""
        comptime if Self.kind == UNIFORM:
            return (words >> 8).cast[Self.T]() * 5.9604644775390625e-08  # 2 ** -24
        elif Self.kind == NORMAL:
            var out_ = SIMD[Self.T, WORDS]()
            box_muller(words, out_)
            return out_
        elif Self.kind == INTEGER:
            var steps = ((words * UInt64(self.span)) >> 32).cast[DType.int64]()
            return (steps + Int64(self.low)).cast[Self.T]()
        else:
            var none = SIMD[Self.T, WORDS](0)
            var keep = words.ge(UInt64(self.low))
            return keep.select(SIMD[Self.T, WORDS](self.scale), none)

    @always_inline
    def write(self, i: Int, values: SIMD[Self.T, WORDS]):
        comptime if Self.kind == DROPOUT:
            var x = self.x.load[WORDS](i)
            var none = SIMD[Self.T, WORDS](0)
            self.z.store[WORDS](i, values.eq(0).select(none, x * values))
        else:
            self.z.store[WORDS](i, values)

    @always_inline
    def write_one(self, i: Int, value: Scalar[Self.T]):
        comptime if Self.kind == DROPOUT:
            self.z[i] = self.x[i] * value if value != 0 else 0
        else:
            self.z[i] = value


# ------------------------------------------------------------------- called from Python


def draw[
    T: DType, kind: Int
](team: Object, a: Arguments, out_: Int, x: Int, low: Int, span: Int, scale: Scalar[T]):
    """(key0, key1, offset) and, as argument `out_`, what is filled."""
    var n = a.size(out_)
    var seed = UInt64(a.integer(0)) | (UInt64(a.integer(1)) << 32)
    var kernel = Draw[T, kind](
        a.buffer[T](x), a.buffer[T](out_), n, seed, UInt64(a.integer(2)), low, span,
        scale,
    )
    parallel_for(Team(team), ceildiv(n, PER_TASK), kernel)


def run_uniform[T: DType](team: Object, a: Arguments):
    draw[T, UNIFORM](team, a, 3, 3, 0, 0, 0)


@export
def uniform(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(key0, key1, offset, out)"""
    return by_float[run_uniform](team, arguments, 3)


def run_normal[T: DType](team: Object, a: Arguments):
    draw[T, NORMAL](team, a, 3, 3, 0, 0, 0)


@export
def normal(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(key0, key1, offset, out)"""
    return by_float[run_normal](team, arguments, 3)


def run_randint[T: DType](team: Object, a: Arguments):
    draw[T, INTEGER](team, a, 5, 5, a.integer(3), a.integer(4), 0)


@export
def randint(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(key0, key1, offset, low, span, out)"""
    return by_bytes[run_randint](team, arguments, 5)


def run_dropout[T: DType](team: Object, a: Arguments):
    draw[T, DROPOUT](team, a, 6, 3, a.integer(4), 0, a.buffer[T](5)[0])


@export
def dropout(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(key0, key1, offset, x, first word that is kept, scale, out)"""
    return by_float[run_dropout](team, arguments, 6)
