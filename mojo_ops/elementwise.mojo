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
    Address, Arguments, Buffer, Object, by_bytes, bytes_on, done, integer, load_some,
    store_some,
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


def map_address(row: MapRow) -> Int:
    var copy = row
    var address = Pointer(to=copy).unsafe_bitcast[Int]()[]
    _ = copy
    return address


def zip_address(row: ZipRow) -> Int:
    var copy = row
    var address = Pointer(to=copy).unsafe_bitcast[Int]()[]
    _ = copy
    return address


def number_map[T: DType](name: StaticString) -> Int:
    """Operators on any numbers."""
    if name == "identity":
        return map_address(map_row[T, op.identity])
    if name == "neg":
        return map_address(map_row[T, op.neg])
    if name == "abs" or name == "abs_int":
        return map_address(map_row[T, op.absolute])
    if name == "sign":
        return map_address(map_row[T, op.sign])
    if name == "relu":
        return map_address(map_row[T, op.relu])
    if name == "isinf":
        return map_address(test_row[T, op.isinf])
    if name == "isfinite":
        return map_address(test_row[T, op.isfinite])
    if name == "isnan":
        return map_address(test_row[T, op.isnan])
    return logic_map[T](name)


def logic_map[T: DType](name: StaticString) -> Int:
    """Operators on numbers and truth values."""
    if name == "logical_not":
        return map_address(test_row[T, op.logical_not])
    return 0


def float_map[T: DType](name: StaticString) -> Int:
    """Operators on floats."""
    if name == "exp":
        return map_address(map_row[T, sm.exp])
    if name == "log":
        return map_address(map_row[T, sm.log])
    if name == "tanh":
        return map_address(map_row[T, sm.tanh])
    if name == "erf":
        return map_address(map_row[T, sm.erf])
    if name == "sigmoid":
        return map_address(map_row[T, sm.sigmoid])
    if name == "floor":
        return map_address(map_row[T, op.floor])
    if name == "ceil":
        return map_address(map_row[T, op.ceil])
    if name == "round":
        return map_address(map_row[T, op.round])
    if name == "sqrt":
        return map_address(map_row[T, op.sqrt])
    if name == "rsqrt":
        return map_address(map_row[T, op.rsqrt])
    if name == "reciprocal":
        return map_address(map_row[T, op.reciprocal])
    comptime for i in range(len(LIBRARY)):
        if name == LIBRARY[i]:
            return map_address(map_row[T, sm.per_lane[LIBRARY[i], ...]])
    if name == "gelu":
        return map_address(map_row[T, op.gelu])
    if name == "gelu_tanh":
        return map_address(map_row[T, op.gelu_tanh])
    if name == "silu":
        return map_address(map_row[T, op.silu])
    if name == "softplus":
        return map_address(map_row[T, op.softplus])
    if name == "logsigmoid":
        return map_address(map_row[T, op.logsigmoid])
    return number_map[T](name)


def number_zip[T: DType](name: StaticString) -> Int:
    """Operators on any two numbers."""
    if name == "add":
        return zip_address(zip_row[T, op.add])
    if name == "sub":
        return zip_address(zip_row[T, op.sub])
    if name == "mul":
        return zip_address(zip_row[T, op.mul])
    if name == "maximum":
        return zip_address(zip_row[T, op.maximum])
    if name == "minimum":
        return zip_address(zip_row[T, op.minimum])
    if name == "floor_divide":
        return zip_address(zip_row[T, op.floor_divide])
    if name == "remainder":
        return zip_address(zip_row[T, op.remainder])
    if name == "relu_backward":
        return zip_address(zip_row[T, op.relu_backward])
    if name == "abs_backward":
        return zip_address(zip_row[T, op.abs_backward])
    return logic_zip[T](name)


def logic_zip[T: DType](name: StaticString) -> Int:
    """Comparisons and logic, on numbers and truth values."""
    if name == "lt":
        return zip_address(relation_row[T, op.lt])
    if name == "le":
        return zip_address(relation_row[T, op.le])
    if name == "gt":
        return zip_address(relation_row[T, op.gt])
    if name == "ge":
        return zip_address(relation_row[T, op.ge])
    if name == "eq":
        return zip_address(relation_row[T, op.eq])
    if name == "ne":
        return zip_address(relation_row[T, op.ne])
    if name == "logical_and":
        return zip_address(relation_row[T, op.logical_and])
    if name == "logical_or":
        return zip_address(relation_row[T, op.logical_or])
    if name == "logical_xor":
        return zip_address(relation_row[T, op.logical_xor])
    return 0


def integer_zip[T: DType](name: StaticString) -> Int:
    """Operators on two integers."""
    if name == "pow_int":
        return zip_address(zip_row[T, op.pow_int])
    return number_zip[T](name)


def float_zip[T: DType](name: StaticString) -> Int:
    """Operators on two floats."""
    if name == "div":
        return zip_address(zip_row[T, op.div])
    if name == "pow":
        return zip_address(zip_row[T, op.pow])
    if name == "elu":
        return zip_address(zip_row[T, op.elu])
    if name == "leaky_relu":
        return zip_address(zip_row[T, op.leaky_relu])
    if name == "squared_difference":
        return zip_address(zip_row[T, op.squared_difference])
    if name == "huber":
        return zip_address(zip_row[T, op.huber])
    if name == "binary_cross_entropy":
        return zip_address(zip_row[T, op.binary_cross_entropy])
    if name == "binary_cross_entropy_with_logits":
        return zip_address(zip_row[T, op.binary_cross_entropy_with_logits])
    if name == "kl_div":
        return zip_address(zip_row[T, op.kl_div])
    if name == "tanh_backward":
        return zip_address(zip_row[T, op.tanh_backward])
    if name == "sigmoid_backward":
        return zip_address(zip_row[T, op.sigmoid_backward])
    if name == "log_backward":
        return zip_address(zip_row[T, op.log_backward])
    if name == "sqrt_backward":
        return zip_address(zip_row[T, op.sqrt_backward])
    if name == "gelu_backward":
        return zip_address(zip_row[T, op.gelu_backward])
    if name == "gelu_tanh_backward":
        return zip_address(zip_row[T, op.gelu_tanh_backward])
    if name == "silu_backward":
        return zip_address(zip_row[T, op.silu_backward])
    return number_zip[T](name)


def cast_from[From: DType](to: StaticString) -> Int:
    """The row function that converts to the type called `to`."""
    if to == "float32":
        return map_address(cast_row[From, DType.float32])
    if to == "float64":
        return map_address(cast_row[From, DType.float64])
    if to == "int64":
        return map_address(cast_row[From, DType.int64])
    if to == "int32":
        return map_address(cast_row[From, DType.int32])
    if to == "int8":
        return map_address(cast_row[From, DType.int8])
    if to == "bool":
        return map_address(truth_row[From])
    return 0


@export
def find_map(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(name, type) -> the address of a row function, 0 where there is none."""
    var name = arguments.text(0)
    var type = arguments.text(1)
    if type == "float32":
        return integer(float_map[DType.float32](name))
    if type == "float64":
        return integer(float_map[DType.float64](name))
    if type == "int64":
        return integer(number_map[DType.int64](name))
    if type == "int32":
        return integer(number_map[DType.int32](name))
    if type == "int8":
        return integer(number_map[DType.int8](name))
    return integer(logic_map[DType.uint8](name))


@export
def find_zip(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(name, type) -> the address of a row function, 0 where there is none."""
    var name = arguments.text(0)
    var type = arguments.text(1)
    if type == "float32":
        return integer(float_zip[DType.float32](name))
    if type == "float64":
        return integer(float_zip[DType.float64](name))
    if type == "int64":
        return integer(integer_zip[DType.int64](name))
    if type == "int32":
        return integer(integer_zip[DType.int32](name))
    if type == "int8":
        return integer(integer_zip[DType.int8](name))
    return integer(logic_zip[DType.uint8](name))


@export
def find_cast(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(from, to) -> the address of the row function that converts."""
    var type = arguments.text(0)
    var to = arguments.text(1)
    if type == "float32":
        return integer(cast_from[DType.float32](to))
    if type == "float64":
        return integer(cast_from[DType.float64](to))
    if type == "int64":
        return integer(cast_from[DType.int64](to))
    if type == "int32":
        return integer(cast_from[DType.int32](to))
    if type == "int8":
        return integer(cast_from[DType.int8](to))
    return integer(cast_from[DType.uint8](to))


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
