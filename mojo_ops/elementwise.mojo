"""Elementwise operations: one operator, applied to every element.

With this file the backend can apply an operator of `operators.mojo` to one tensor
(`map_flat`, `map_strided`) or to two (`zip_flat`, `zip_strided`), in any layout.

What differs from operator to operator is one loop over elements that lie behind each
other, a *row function*:

    map_row[float32, exp]       z[i] = exp(x[i])          for i < n
    zip_row[float32, add]       z[i] = add(x[i], y[i])

`find_map` and `find_zip` give Python a row function's address, by name and type. The
kernels call it for chunk after chunk; what has gaps is gathered first (`Operand`).
"""

from std.sys import simd_width_of
from std.memory import stack_allocation

import operators as op
import scalar_math as sm
from bridge import (
    NUMBERS, TRUTH, Address, Arguments, Buffer, Object, by_bytes, bytes_on, done,
    integer, load_some, store_some,
)
from parallel import Kernel, Team, parallel_for

comptime MapRow = def(Address, Address, Int) thin -> None
comptime ZipRow = def(Address, Address, Address, Int) thin -> None

comptime Unary = def[T: DType, w: Int](SIMD[T, w]) thin -> SIMD[T, w]
comptime Binary = def[T: DType, w: Int](SIMD[T, w], SIMD[T, w]) thin -> SIMD[T, w]
comptime Test = def[T: DType, w: Int](SIMD[T, w]) thin -> SIMD[DType.bool, w]
comptime Relation = def[T: DType, w: Int](SIMD[T, w], SIMD[T, w]) thin -> SIMD[
    DType.bool, w
]

comptime CHUNK = 1024  # elements of a row that are gathered at a time, at most
comptime CHUNK_WITH_GAPS = 256  # where each may be in a cache line of its own
comptime PER_TASK = 16384  # elements of a task on flat operands

# Functions of the C library that are operators.
comptime LIBRARY = (
    "log1p", "expm1", "sin", "cos", "log2", "log10", "acos", "sinh", "cosh"
)


# ----------------------------------------------------------------------- row functions


def map_row[T: DType, f: Unary](a: Address, out_: Address, n: Int):
    """z[i] = f(x[i]) for i < n"""
    comptime w = simd_width_of[T]()
    var x = Buffer[T](a)
    var z = Buffer[T](out_)
    var whole = n // w * w
    for i in range(0, whole, w):
        z.store[w](i, f[T, w](x.load[w](i)))
    if whole < n:
        store_some[T, w](z, whole, n, f[T, w](load_some[T, w](x, whole, n)))


def zip_row[T: DType, f: Binary](a: Address, b: Address, out_: Address, n: Int):
    """z[i] = f(x[i], y[i]) for i < n"""
    comptime w = simd_width_of[T]()
    var x = Buffer[T](a)
    var y = Buffer[T](b)
    var z = Buffer[T](out_)
    var whole = n // w * w
    for i in range(0, whole, w):
        z.store[w](i, f[T, w](x.load[w](i), y.load[w](i)))
    if whole < n:
        var last = f[T, w](load_some[T, w](x, whole, n), load_some[T, w](y, whole, n))
        store_some[T, w](z, whole, n, last)


def test_row[T: DType, f: Test](a: Address, out_: Address, n: Int):
    """`map_row` for an operator that answers yes or no."""
    comptime w = simd_width_of[T]()
    var x = Buffer[T](a)
    var z = Buffer[DType.uint8](out_)
    var whole = n // w * w
    for i in range(0, whole, w):
        z.store[w](i, f[T, w](x.load[w](i)).cast[DType.uint8]())
    for i in range(whole, n):
        z[i] = f[T, 1](x[i]).cast[DType.uint8]()


def relation_row[T: DType, f: Relation](a: Address, b: Address, out_: Address, n: Int):
    """`zip_row` for an operator that answers yes or no."""
    comptime w = simd_width_of[T]()
    var x = Buffer[T](a)
    var y = Buffer[T](b)
    var z = Buffer[DType.uint8](out_)
    var whole = n // w * w
    for i in range(0, whole, w):
        z.store[w](i, f[T, w](x.load[w](i), y.load[w](i)).cast[DType.uint8]())
    for i in range(whole, n):
        z[i] = f[T, 1](x[i], y[i]).cast[DType.uint8]()


def cast_row[From: DType, To: DType](a: Address, out_: Address, n: Int):
    """z[i] = x[i] as another type; floats to integers toward zero"""
    comptime w = simd_width_of[From]()
    var x = Buffer[From](a)
    var z = Buffer[To](out_)
    var whole = n // w * w
    for i in range(0, whole, w):
        z.store[w](i, x.load[w](i).cast[To]())
    for i in range(whole, n):
        z[i] = x[i].cast[To]()


def truth_row[From: DType](a: Address, out_: Address, n: Int):
    """z[i] = x[i] != 0"""
    var x = Buffer[From](a)
    var z = Buffer[DType.uint8](out_)
    for i in range(n):
        z[i] = (~x[i].eq(0)).cast[DType.uint8]()


# ----------------------------------------------------------- from a name to a function


def row_address[Row: TrivialRegisterPassable](row: Row) -> Int:
    """Where a row function is."""
    var copy = row
    var address = Pointer(to=copy).unsafe_bitcast[Int]()[]
    _ = copy
    return address


comptime Map = Tuple[StaticString, Unary]
comptime Ask = Tuple[StaticString, Test]
comptime Zip = Tuple[StaticString, Binary]
comptime Compare = Tuple[StaticString, Relation]

# Operators by their names: on floats, on any numbers, and `RELATIONS` on truth values,
# too.
comptime FLOAT_MAPS = (
    Map("exp", sm.exp), Map("log", sm.log), Map("tanh", sm.tanh), Map("erf", sm.erf),
    Map("sigmoid", sm.sigmoid), Map("floor", op.floor), Map("ceil", op.ceil),
    Map("round", op.round), Map("sqrt", op.sqrt), Map("rsqrt", op.rsqrt),
    Map("reciprocal", op.reciprocal), Map("gelu", op.gelu),
    Map("gelu_tanh", op.gelu_tanh), Map("silu", op.silu), Map("softplus", op.softplus),
    Map("logsigmoid", op.logsigmoid),
)
comptime MAPS = (
    Map("identity", op.identity), Map("neg", op.neg), Map("abs", op.absolute),
    Map("abs_int", op.absolute), Map("sign", op.sign), Map("relu", op.relu),
)
comptime TESTS = (
    Ask("isinf", op.isinf), Ask("isfinite", op.isfinite), Ask("isnan", op.isnan),
)
comptime FLOAT_ZIPS = (
    Zip("div", op.div), Zip("pow", op.pow), Zip("elu", op.elu),
    Zip("leaky_relu", op.leaky_relu), Zip("squared_difference", op.squared_difference),
    Zip("huber", op.huber), Zip("binary_cross_entropy", op.binary_cross_entropy),
    Zip("binary_cross_entropy_with_logits", op.binary_cross_entropy_with_logits),
    Zip("kl_div", op.kl_div), Zip("tanh_backward", op.tanh_backward),
    Zip("sigmoid_backward", op.sigmoid_backward), Zip("log_backward", op.log_backward),
    Zip("sqrt_backward", op.sqrt_backward), Zip("gelu_backward", op.gelu_backward),
    Zip("gelu_tanh_backward", op.gelu_tanh_backward),
    Zip("silu_backward", op.silu_backward),
)
comptime ZIPS = (
    Zip("add", op.add), Zip("sub", op.sub), Zip("mul", op.mul),
    Zip("maximum", op.maximum), Zip("minimum", op.minimum),
    Zip("floor_divide", op.floor_divide), Zip("remainder", op.remainder),
    Zip("relu_backward", op.relu_backward), Zip("abs_backward", op.abs_backward),
)
comptime RELATIONS = (
    Compare("lt", op.lt), Compare("le", op.le), Compare("gt", op.gt),
    Compare("ge", op.ge), Compare("eq", op.eq), Compare("ne", op.ne),
    Compare("logical_and", op.logical_and), Compare("logical_or", op.logical_or),
    Compare("logical_xor", op.logical_xor),
)

def map_named[T: DType](name: StaticString) -> Int:
    """The address of an operator's row function, 0 where there is none for T."""
    comptime if T.is_floating_point():
        comptime for i in range(len(FLOAT_MAPS)):
            if name == FLOAT_MAPS[i][0]:
                return row_address(map_row[T, FLOAT_MAPS[i][1]])
        comptime for i in range(len(LIBRARY)):
            if name == LIBRARY[i]:
                return row_address(map_row[T, sm.per_lane[LIBRARY[i], ...]])
    comptime if T != TRUTH:
        comptime for i in range(len(MAPS)):
            if name == MAPS[i][0]:
                return row_address(map_row[T, MAPS[i][1]])
        comptime for i in range(len(TESTS)):
            if name == TESTS[i][0]:
                return row_address(test_row[T, TESTS[i][1]])
    if name == "logical_not":
        return row_address(test_row[T, op.logical_not])
    return 0


def zip_named[T: DType](name: StaticString) -> Int:
    """`map_named` for operators with two operands."""
    comptime if T.is_floating_point():
        comptime for i in range(len(FLOAT_ZIPS)):
            if name == FLOAT_ZIPS[i][0]:
                return row_address(zip_row[T, FLOAT_ZIPS[i][1]])
    elif T != TRUTH:
        if name == "pow_int":
            return row_address(zip_row[T, op.pow_int])
    comptime if T != TRUTH:
        comptime for i in range(len(ZIPS)):
            if name == ZIPS[i][0]:
                return row_address(zip_row[T, ZIPS[i][1]])
    comptime for i in range(len(RELATIONS)):
        if name == RELATIONS[i][0]:
            return row_address(relation_row[T, RELATIONS[i][1]])
    return 0


def cast_from[From: DType](to: StaticString) -> Int:
    """The row function that converts to the type called `to`."""
    comptime for i in range(len(NUMBERS)):
        if to == NUMBERS[i][0]:
            return row_address(cast_row[From, NUMBERS[i][1]])
    return row_address(truth_row[From]) if to == "bool" else 0


@export
def find_map(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(name, type) -> the address of a row function, 0 where there is none."""
    var type = arguments.text(1)
    comptime for i in range(len(NUMBERS)):
        if type == NUMBERS[i][0]:
            return integer(map_named[NUMBERS[i][1]](arguments.text(0)))
    return integer(map_named[TRUTH](arguments.text(0)))


@export
def find_zip(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(name, type) -> the address of a row function, 0 where there is none."""
    var type = arguments.text(1)
    comptime for i in range(len(NUMBERS)):
        if type == NUMBERS[i][0]:
            return integer(zip_named[NUMBERS[i][1]](arguments.text(0)))
    return integer(zip_named[TRUTH](arguments.text(0)))


@export
def find_cast(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(from, to) -> the address of the row function that converts."""
    var type = arguments.text(0)
    comptime for i in range(len(NUMBERS)):
        if type == NUMBERS[i][0]:
            return integer(cast_from[NUMBERS[i][1]](arguments.text(1)))
    return integer(cast_from[TRUTH](arguments.text(1)))


# ------------------------------------------------------------------------ flat operands


@fieldwise_init
struct MapFlat(Kernel):
    """z[i] = f(x[i]); a task is PER_TASK elements."""

    var row: Int
    var x: Address
    var z: Address
    var x_item: Int
    var z_item: Int
    var n: Int

    def run(self, task: Int) raises:
        # BEGIN SOLUTION a9.5
        var start = task * PER_TASK
        self.call(
            bytes_on(self.x, start * self.x_item),
            bytes_on(self.z, start * self.z_item),
            min(PER_TASK, self.n - start),
        )
        # END SOLUTION a9.5

    @always_inline
    def call(self, x: Address, z: Address, n: Int):
        """Apply the operator to n elements: z[i] = f(x[i])."""
        var word = self.row
        var row = Pointer(to=word).unsafe_bitcast[MapRow]()[]
        row(x, z, n)
        _ = word


@fieldwise_init
struct ZipFlat(Kernel):
    """z[i] = f(x[i], y[i]); a task is PER_TASK elements.

    One of both may be a single number, which is repeated in a small chunk of memory.
    """

    var row: Int
    var x: Address
    var y: Address
    var z: Address
    var item: Int
    var z_item: Int
    var n: Int
    var one: Int  # 1 if x is one number, 2 if y is, else 0

    def run(self, task: Int):
        var start = task * PER_TASK
        var n = min(PER_TASK, self.n - start)
        var x = bytes_on(self.x, start * self.item)
        var y = bytes_on(self.y, start * self.item)
        var z = bytes_on(self.z, start * self.z_item)
        if self.one == 0:
            self.call(x, y, z, n)
            return
        var memory = stack_allocation[CHUNK, Int64, alignment=64]()
        var room = memory.unsafe_bitcast[NoneType]().unsafe_origin_cast[
            MutUntrackedOrigin
        ]()
        var number = self.x if self.one == 1 else self.y
        move_any(self.item, number, 0, room, 1, min(n, CHUNK))
        for i in range(0, n, CHUNK):
            var left = room if self.one == 1 else bytes_on(x, i * self.item)
            var right = room if self.one == 2 else bytes_on(y, i * self.item)
            self.call(left, right, bytes_on(z, i * self.z_item), min(CHUNK, n - i))

    @always_inline
    def call(self, x: Address, y: Address, z: Address, n: Int):
        """Apply the operator to n pairs: `z[i] = f(x[i], y[i])`."""
        var word = self.row
        Pointer(to=word).unsafe_bitcast[ZipRow]()[](x, y, z, n)
        _ = word


@always_inline
def tasks_for(n: Int) -> Int:
    return (n + PER_TASK - 1) // PER_TASK


@export
def map_flat(team: Object, a: Arguments, count: Int) abi("C") -> Object:
    """(row, x, z): z[i] = f(x[i])"""
    var kernel = MapFlat(
        a.integer(0), a.address(1), a.address(2), a.bytes(1), a.bytes(2), a.size(2)
    )
    parallel_for(Team(team), tasks_for(kernel.n), kernel)
    return done()


@export
def zip_flat(team: Object, a: Arguments, count: Int) abi("C") -> Object:
    """(row, x, y, z): z[i] = f(x[i], y[i]); x or y may be one number"""
    var n = a.size(3)
    var one = 1 if a.size(1) != n else (2 if a.size(2) != n else 0)
    var kernel = ZipFlat(
        a.integer(0), a.address(1), a.address(2), a.address(3), a.bytes(1), a.bytes(3),
        n, one,
    )
    parallel_for(Team(team), tasks_for(n), kernel)
    return done()


# --------------------------------------------------------------------- strided operands


@always_inline
def move[T: DType](source: Address, step: Int, to: Address, to_step: Int, n: Int):
    """`to[i * to_step] = source[i * step]` for i < n."""
    var x = Buffer[T](source)
    var z = Buffer[T](to)
    if step == 0 and to_step == 1:
        comptime w = simd_width_of[T]()
        var whole = n // w * w
        for i in range(0, whole, w):
            z.store[w](i, SIMD[T, w](x[0]))
        for i in range(whole, n):
            z[i] = x[0]
        return
    for i in range(n):
        z[i * to_step] = x[i * step]


def move_any(
    item: Int, source: Address, step: Int, to: Address, to_step: Int, n: Int
):
    """`move` for elements of `item` bytes."""
    if item == 4:
        move[DType.int32](source, step, to, to_step, n)
    elif item == 8:
        move[DType.int64](source, step, to, to_step, n)
    else:
        move[DType.uint8](source, step, to, to_step, n)


@fieldwise_init
struct Operand(TrivialRegisterPassable):
    """A tensor as four loops see it: where it starts, and a stride for each loop."""

    var data: Address
    var item: Int  # bytes of an element
    var steps: Buffer[DType.int64]

    @always_inline
    def at(self, i: Int, j: Int, k: Int, x: Int) -> Address:
        """The element (i, j, k, x)."""
        var position = (
            i * Int(self.steps[0])
            + j * Int(self.steps[1])
            + k * Int(self.steps[2])
            + x * Int(self.steps[3])
        )
        return bytes_on(self.data, position * self.item)

    @always_inline
    def dense(self) -> Bool:
        return Int(self.steps[3]) == 1

    @always_inline
    def gaps(self) -> Bool:
        return Int(self.steps[3]) != 1 and Int(self.steps[3]) != 0

    @always_inline
    def gathered(self, start: Address, room: Address, n: Int) -> Address:
        """n elements from `start` on, one behind the other: there, or in `room`."""
        if self.dense():
            return start
        move_any(self.item, start, Int(self.steps[3]), room, 1, n)
        return room


struct Place(TrivialRegisterPassable):
    """Which chunk of which row a task does: (i, j, k), and elements from x on."""

    var i: Int
    var j: Int
    var k: Int
    var x: Int
    var n: Int

    @always_inline
    def __init__(out self, task: Int, shape: Buffer[DType.int64], chunk: Int):
        # Neighbouring tasks do the same chunk of neighbouring rows, so that they find
        # each other's cache lines where a row has gaps.
        var chunks = (Int(shape[3]) + chunk - 1) // chunk
        var rest = task // Int(shape[2])
        self.k = task - rest * Int(shape[2])
        var ij = rest // chunks
        self.x = (rest - ij * chunks) * chunk
        self.i = ij // Int(shape[1])
        self.j = ij - self.i * Int(shape[1])
        self.n = min(chunk, Int(shape[3]) - self.x)


@fieldwise_init
struct Strided(Kernel):
    """z = f(x) or f(x, y) in any layout; a task is some chunks of rows (i, j, k)."""

    var row: Int
    var operands: Int  # 1 or 2
    var x: Operand
    var y: Operand
    var z: Operand
    var shape: Buffer[DType.int64]
    var chunk: Int
    var chunks: Int  # in all
    var per_task: Int  # chunks in a task

    def run(self, task: Int):
        var room = stack_allocation[3 * CHUNK, Int64, alignment=64]()
        var a = room.unsafe_bitcast[NoneType]().unsafe_origin_cast[MutUntrackedOrigin]()
        var first = task * self.per_task
        for chunk in range(first, min(first + self.per_task, self.chunks)):
            self.one(Place(chunk, self.shape, self.chunk), a)

    @always_inline
    def one(self, p: Place, room: Address):
        var word = self.row
        var start = self.z.at(p.i, p.j, p.k, p.x)
        var z = start if self.z.dense() else bytes_on(room, 16 * CHUNK)
        var x = self.x.gathered(self.x.at(p.i, p.j, p.k, p.x), room, p.n)
        if self.operands == 1:
            Pointer(to=word).unsafe_bitcast[MapRow]()[](x, z, p.n)
        else:
            var y_start = self.y.at(p.i, p.j, p.k, p.x)
            var y = self.y.gathered(y_start, bytes_on(room, 8 * CHUNK), p.n)
            Pointer(to=word).unsafe_bitcast[ZipRow]()[](x, y, z, p.n)
        if not self.z.dense():
            move_any(self.z.item, z, 1, start, Int(self.z.steps[3]), p.n)
        _ = word


def run_strided(team: Object, arguments: Arguments, operands: Int):
    """Arguments: row, plan, then for each operand its array and its offset.

    The plan is an array of int64: the four loops' sizes, then four strides for each
    operand, out being the last. An array [n] of `elementwise.py`, kept there.
    """
    var plan = arguments.buffer[DType.int64](1)
    var all = InlineOperands(arguments, plan, operands)
    var gaps = all.x.gaps() or all.y.gaps() or all.z.gaps()
    var chunk = min(CHUNK_WITH_GAPS if gaps else CHUNK, Int(plan[3]))
    var chunks = (Int(plan[3]) + chunk - 1) // chunk
    chunks *= Int(plan[0]) * Int(plan[1]) * Int(plan[2])
    var per_task = max(1, PER_TASK // chunk)
    var kernel = Strided(
        arguments.integer(0), operands, all.x, all.y, all.z, plan, chunk, chunks,
        per_task,
    )
    parallel_for(Team(team), (chunks + per_task - 1) // per_task, kernel)


struct InlineOperands(TrivialRegisterPassable):
    """The operands of a call, in the order x, (y,) z."""

    var x: Operand
    var y: Operand
    var z: Operand

    def __init__(out self, a: Arguments, plan: Buffer[DType.int64], operands: Int):
        self.x = operand(a, plan, 0)
        self.y = operand(a, plan, operands - 1)
        self.z = operand(a, plan, operands)


def operand(a: Arguments, plan: Buffer[DType.int64], i: Int) -> Operand:
    var item = a.bytes(2 + 2 * i)
    var start = bytes_on(a.address(2 + 2 * i), a.integer(2 + 2 * i + 1) * item)
    return Operand(start, item, plan.at(4 + 4 * i))


@export
def map_strided(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(row, plan, x, offset, z, offset): z = f(x)"""
    run_strided(team, arguments, 1)
    return done()


@export
def zip_strided(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(row, plan, x, offset, y, offset, z, offset): z = f(x, y)"""
    run_strided(team, arguments, 2)
    return done()


# --------------------------------------------------------------------------- choosing


@fieldwise_init
struct WhereFlat[T: DType](Kernel):
    """z[i] = x[i] if c[i] else y[i]; a task is PER_TASK elements.

    A step is 0 where there is one number for all i, else 1.
    """

    var c: Buffer[DType.uint8]
    var x: Buffer[Self.T]
    var y: Buffer[Self.T]
    var z: Buffer[Self.T]
    var x_step: Int
    var y_step: Int
    var n: Int

    def run(self, task: Int):
        var last = min(task * PER_TASK + PER_TASK, self.n)
        if self.x_step * self.y_step == 1:
            for i in range(task * PER_TASK, last):
                self.z[i] = self.x[i] if self.c[i] != 0 else self.y[i]
            return
        for i in range(task * PER_TASK, last):
            var x = self.x[i * self.x_step]
            var y = self.y[i * self.y_step]
            self.z[i] = x if self.c[i] != 0 else y


def run_where[T: DType](team: Object, a: Arguments):
    var n = a.size(3)
    var kernel = WhereFlat[T](
        a.buffer[DType.uint8](0), a.buffer[T](1), a.buffer[T](2), a.buffer[T](3),
        Int(a.size(1) != 1), Int(a.size(2) != 1), n,
    )
    parallel_for(Team(team), tasks_for(n), kernel)


@export
def where_flat(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(condition, x, y, z): z[i] = x[i] if condition[i] else y[i]; x and y may be one
    number each"""
    return by_bytes[run_where](team, arguments, 3)
