"""What a kernel is given: Python's arguments, read without copying.

With this file a kernel can read numbers and the memory of NumPy arrays from the
arguments that Python passes (`Arguments`), and index such memory by element or by
vector (`Buffer`).

An exported kernel has the signature of a C function for Python (METH_FASTCALL), and
`mojo_ops/bridge.py` makes it callable:

    @export
    def add_all(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
        var a = arguments.buffer[DType.float32](0)
        ...
        return done()

`team` is the thread team (`parallel.mojo`). Most kernels are functions of a type, which
an argument decides: `by_float[run](team, arguments, 0)` and its neighbours. Nothing
checks the arguments here: the launcher, in `minitorch/backend/host` or in the Python
file of the same name, has done so.
"""

from std.ffi import external_call
from std.math import iota
from std.sys.intrinsics import masked_load, masked_store

comptime Address = Pointer[NoneType, MutUntrackedOrigin]
comptime Object = Address  # a Python object

# Where an array object keeps the address of its first element, that of its sizes, and
# its type of elements; and where that keeps NumPy's number for it. `bridge.py` verifies
# them when it loads the kernels.
comptime DATA = 16
comptime SIZES = 32
comptime ELEMENTS = 56
comptime NUMBER = 28

# NumPy's numbers for types; 64-bit integers have one of several.
comptime BOOL = 0
comptime INT8 = 1
comptime INT32 = 5
comptime FLOAT32 = 11
comptime FLOAT64 = 12

# The types of numbers by their names, and as what truth values are read.
comptime NUMBERS = (
    ("float32", DType.float32), ("float64", DType.float64), ("int64", DType.int64),
    ("int32", DType.int32), ("int8", DType.int8),
)
comptime TRUTH = DType.uint8


struct Buffer[T: DType](TrivialRegisterPassable):
    """Elements of type T that lie one behind the other; their owner is elsewhere."""

    var data: Pointer[Scalar[Self.T], MutUntrackedOrigin]

    @always_inline
    def __init__(out self, address: Address):
        self.data = address.unsafe_bitcast[Scalar[Self.T]]()

    @always_inline
    def __getitem__(self, i: Int) -> Scalar[Self.T]:
        return self.data[unsafe_offset=i]

    @always_inline
    def __setitem__(self, i: Int, value: Scalar[Self.T]):
        self.data[unsafe_offset=i] = value

    @always_inline
    def load[width: Int](self, i: Int) -> SIMD[Self.T, width]:
        """Elements i to i + width - 1."""
        return self.data.unsafe_load[width=width](i)

    @always_inline
    def store[width: Int](self, i: Int, value: SIMD[Self.T, width]):
        """Write elements i to i + width - 1."""
        self.data.unsafe_store(i, value)

    @always_inline
    def at(self, i: Int) -> Self:
        """The same memory, counted from element i on."""
        return Self(self.data.unsafe_offset(i).unsafe_bitcast[NoneType]())

    @always_inline
    def address(self) -> Address:
        return self.data.unsafe_bitcast[NoneType]()


comptime Table = Buffer[DType.int64]


@always_inline
def load_some[T: DType, w: Int](x: Buffer[T], i: Int, n: Int) -> SIMD[T, w]:
    """Elements i to i + w - 1; ones from n on, which need not exist."""
    var mask = (iota[DType.int64, w]() + Int64(i)).lt(Int64(n))
    return masked_load[w](x.at(i).data, mask, SIMD[T, w](1))


@always_inline
def store_some[T: DType, w: Int](z: Buffer[T], i: Int, n: Int, value: SIMD[T, w]):
    """Write elements i to i + w - 1, but none from n on."""
    var mask = (iota[DType.int64, w]() + Int64(i)).lt(Int64(n))
    masked_store[w](value, z.at(i).data, mask)


@always_inline
def bytes_on(start: Address, count: Int) -> Address:
    """The byte `count` bytes after `start`."""
    return start.unsafe_bitcast[UInt8]().unsafe_offset(count).unsafe_bitcast[NoneType]()


struct Arguments(TrivialRegisterPassable):
    """The arguments of a call from Python."""

    var items: Pointer[Object, MutUntrackedOrigin]

    @always_inline
    def integer(self, i: Int) -> Int:
        return external_call["PyLong_AsLongLong", Int](self.items[unsafe_offset=i])

    @always_inline
    def number(self, i: Int) -> Float64:
        return external_call["PyFloat_AsDouble", Float64](self.items[unsafe_offset=i])

    def text(self, i: Int) -> StaticString:
        """A string; valid as long as the caller holds it."""
        var start = external_call[
            "PyUnicode_AsUTF8", Pointer[UInt8, ImmStaticOrigin]
        ](self.items[unsafe_offset=i])
        var length = external_call["strlen", Int](start)
        return StaticString(
            unsafe_from_utf8=Span[UInt8, ImmStaticOrigin](
                unsafe_ptr=start, length=length
            )
        )

    @always_inline
    def address(self, i: Int) -> Address:
        """The first byte of an array."""
        return address_of(self.items[unsafe_offset=i])

    @always_inline
    def buffer[T: DType](self, i: Int) -> Buffer[T]:
        """The elements of a flat array."""
        return Buffer[T](self.address(i))

    @always_inline
    def size(self, i: Int) -> Int:
        """The first size of an array: how many elements a flat one has."""
        return word[Int](word[Address](self.items[unsafe_offset=i], SIZES), 0)

    @always_inline
    def type(self, i: Int) -> Int:
        """NumPy's number for the type of an array's elements."""
        var elements = word[Address](self.items[unsafe_offset=i], ELEMENTS)
        return Int(word[Int32](elements, NUMBER))


    @always_inline
    def bytes(self, i: Int) -> Int:
        """How many bytes an element of an array has."""
        var type = self.type(i)
        if type == FLOAT32 or type == INT32:
            return 4
        return 1 if type == BOOL or type == INT8 else 8


comptime Run = def[T: DType](Object, Arguments) thin -> None


def by_float[run: Run](team: Object, arguments: Arguments, i: Int) -> Object:
    """`run` for the type of array i, float32 or float64."""
    if arguments.type(i) == FLOAT32:
        run[DType.float32](team, arguments)
    else:
        run[DType.float64](team, arguments)
    return done()


def by_number[run: Run](team: Object, arguments: Arguments, i: Int) -> Object:
    """`run` for the type of array i, which is no truth value."""
    var type = arguments.type(i)
    if type == FLOAT32 or type == FLOAT64:
        return by_float[run](team, arguments, i)
    if type == INT32:
        run[DType.int32](team, arguments)
    elif type == INT8:
        run[DType.int8](team, arguments)
    else:
        run[DType.int64](team, arguments)
    return done()


def by_type[run: Run](team: Object, arguments: Arguments, i: Int) -> Object:
    """`run` for the type of array i; truth values are bytes, 0 or 1."""
    if arguments.type(i) != BOOL:
        return by_number[run](team, arguments, i)
    run[DType.uint8](team, arguments)
    return done()


def by_bytes[run: Run](team: Object, arguments: Arguments, i: Int) -> Object:
    """`run` for an integer type as wide as the elements of array i, to move them."""
    var bytes = arguments.bytes(i)
    if bytes == 4:
        run[DType.int32](team, arguments)
    elif bytes == 8:
        run[DType.int64](team, arguments)
    else:
        run[DType.uint8](team, arguments)
    return done()


@always_inline
def address_of(array: Object) -> Address:
    """The first byte of an array."""
    return word[Address](array, DATA)


@always_inline
def word[T: TrivialRegisterPassable](start: Address, at: Int) -> T:
    """What lies `at` bytes after `start`."""
    return bytes_on(start, at).unsafe_bitcast[T]()[]


@always_inline
def integer(value: Int) -> Object:
    """A Python int, for a kernel to return."""
    return external_call["PyLong_FromLongLong", Object](value)


def done() -> Object:
    """What a kernel returns that has nothing to say: 0, or NULL after an error."""
    if external_call["PyErr_Occurred", Int]() != 0:
        return null()
    return integer(0)


@always_inline
def null() -> Object:
    """What a function returns to Python after it has set an error."""
    var nowhere = 0
    return Object(unsafe_from_address=nowhere)


def raise_in_python(text: Address):
    """Set a RuntimeError; Python raises it when the kernel returns `null()`."""
    var builtins = String("builtins")
    var name = String("RuntimeError")
    var module = external_call["PyImport_ImportModule", Object](
        builtins.as_c_string_span().ptr()
    )
    var type = external_call["PyObject_GetAttrString", Object](
        module, name.as_c_string_span().ptr()
    )
    external_call["PyErr_SetString", NoneType](type, text)
    _ = builtins^
    _ = name^


def fail(error: Error):
    """Let Python raise a RuntimeError with the text of `error`."""
    var text = String(error)
    var start = text.as_c_string_span().ptr().unsafe_bitcast[NoneType]()
    raise_in_python(Object(unsafe_from_address=Int(start)))
    _ = text^
