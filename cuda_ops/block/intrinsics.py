"""What a GPU can do and Python has no words for: vectors, warps, tensor cores.

With this file a kernel can move 16 bytes at once (`load4`, `store4`), let the 32
threads of a warp exchange values (`shuffle_xor`) and round factors for tensor cores
(`tf32_word`).

A function decorated with `@emulated` writes LLVM code; in the simulator the function of
the same name in `cuda_ops/simulator/emulation.py` runs instead. A function decorated
with `@device` is plain Python on top of them.

    x0, x1, x2, x3 = load4(array, i)       i counts elements; array[i] is aligned

Unlike `array[i]`, these do not take a negative index to count from the end, which saves
a comparison and an addition for each access. And they take arrays of float16 and
bfloat16, whose numbers are float32 in registers (`cuda_ops/runtime/halves.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, types

from cuda_ops.block.llvm import assembly
from cuda_ops.runtime.halves import computed, narrowed, widened
from cuda_ops.simulator import SIMULATED, emulation
from cuda_ops.simulator.emulation import ALL_LANES
from cuda_ops.simulator.watch import WARP as WARP

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import cgutils
    from numba.cuda.extending import intrinsic


def emulated(stand_in: Callable) -> Callable[[Callable], Any]:
    """Decorate a function that writes LLVM code; `stand_in` runs in the simulator."""

    def decorate(write: Callable) -> Any:
        return stand_in if SIMULATED else intrinsic(write)

    return decorate


def device(fn: Callable) -> Any:
    """Decorate a function for use in kernels, of any arguments; it is inlined."""
    return fn if SIMULATED else cuda.jit(device=True, inline="always")(fn)


def is_aligned(*arrays: Any) -> bool:
    """Whether all of these flat arrays begin at a multiple of 16 bytes (for hosts)."""
    if SIMULATED:
        return all(array.ctypes.data % 16 == 0 for array in arrays)
    for array in arrays:  # an owner of memory begins where that does
        if array.block is None and array.pointer % 16:
            return False
    return True


# ------------------------------------------------------------------------- memory


def _pointer(context: Any, builder: Any, kind: Any, array: Any, i: Any) -> Any:
    """The address of array[i], for arrays in global and in shared memory."""
    struct = context.make_array(kind)(context, builder, array)
    return builder.gep(struct.data, [i])


def _index(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.cast(builder, value, kind, types.intp)


def _is_array(kind: Any) -> bool:
    return isinstance(kind, types.Array) and kind.ndim == 1


def _load_vector(count: int) -> Callable:
    """Write a load of `count` elements at once, which gives a tuple."""

    def write(typing: Any, array: Any, i: Any) -> Any:
        if not (_is_array(array) and isinstance(i, types.Integer)):
            return None
        result = types.UniTuple(computed(array.dtype), count)

        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            i = _index(context, builder, sig.args[1], args[1])
            pointer = _pointer(context, builder, sig.args[0], args[0], i)
            model = context.data_model_manager[array.dtype]
            vector = ir.VectorType(context.get_data_type(array.dtype), count)
            pointer = builder.bitcast(pointer, _pointer_to(vector, pointer))
            both = builder.load(pointer, align=_alignment(array.dtype, count))
            parts = [builder.extract_element(both, I32(k)) for k in range(count)]
            items = [
                widened(builder, array.dtype, model.from_data(builder, part))
                for part in parts
            ]
            return context.make_tuple(builder, sig.return_type, items)

        return result(array, i), code

    return write


def _store_vector(count: int) -> Callable:
    """Write a store of `count` elements at once."""

    def write(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.args[0]
        i = _index(context, builder, sig.args[1], args[1])
        pointer = _pointer(context, builder, kind, args[0], i)
        model = context.data_model_manager[kind.dtype]
        vector = ir.VectorType(context.get_data_type(kind.dtype), count)
        pointer = builder.bitcast(pointer, _pointer_to(vector, pointer))
        both = ir.Constant(vector, ir.Undefined)
        for k in range(count):
            value = _as_stored(context, builder, kind, sig.args[2 + k], args[2 + k])
            part = model.as_data(builder, value)
            both = builder.insert_element(both, part, I32(k))
        builder.store(both, pointer, align=_alignment(kind.dtype, count))
        return context.get_dummy_value()

    return write


def _as_stored(context: Any, builder: Any, kind: Any, given: Any, value: Any) -> Any:
    """A value of the type `given` as it lies in an array of `kind`."""
    value = context.cast(builder, value, given, computed(kind.dtype))
    return narrowed(builder, kind.dtype, value)


def _pointer_to(kind: Any, pointer: Any) -> Any:
    return ir.PointerType(kind, pointer.type.addrspace)


def _alignment(dtype: Any, count: int) -> int:
    """Bytes to which an address of `count` elements is aligned; a bool is one byte."""
    return min(16, count * (getattr(dtype, "bitwidth", 8) // 8))


if not SIMULATED:
    I32, I64 = ir.IntType(32), ir.IntType(64)
    F32 = ir.FloatType()


@emulated(emulation.load2)
def load2(typing: Any, array: Any, i: Any) -> Any:
    """Two elements from i on, 8 bytes of 4-byte elements."""
    return _load_vector(2)(typing, array, i)


@emulated(emulation.load4)
def load4(typing: Any, array: Any, i: Any) -> Any:
    """`x0, x1, x2, x3 = load4(array, i)`: 16 bytes at once, of 4-byte elements."""
    return _load_vector(4)(typing, array, i)


@emulated(emulation.load8)
def load8(typing: Any, array: Any, i: Any) -> Any:
    """Eight elements from i on, 16 bytes of 2-byte elements."""
    return _load_vector(8)(typing, array, i)


@emulated(emulation.store4)
def store4(typing: Any, array: Any, i: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """`store4(array, i, x0, x1, x2, x3)`"""
    if not (_is_array(array) and isinstance(i, types.Integer)):
        return None
    return types.void(array, i, a, b, c, d), _store_vector(4)


@emulated(emulation.store2)
def store2(typing: Any, array: Any, i: Any, a: Any, b: Any) -> Any:
    """`store2(array, i, x0, x1)`"""
    if not (_is_array(array) and isinstance(i, types.Integer)):
        return None
    return types.void(array, i, a, b), _store_vector(2)


@emulated(emulation.load)
def load(typing: Any, array: Any, i: Any) -> Any:
    """array[i] for i >= 0"""
    if not (_is_array(array) and isinstance(i, types.Integer)):
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i = _index(context, builder, sig.args[1], args[1])
        pointer = _pointer(context, builder, sig.args[0], args[0], i)
        value = context.unpack_value(builder, array.dtype, pointer)
        return widened(builder, array.dtype, value)

    return computed(array.dtype)(array, i), code


@emulated(emulation.store)
def store(typing: Any, array: Any, i: Any, value: Any) -> Any:
    """array[i] = value for i >= 0"""
    if not (_is_array(array) and isinstance(i, types.Integer)):
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i = _index(context, builder, sig.args[1], args[1])
        pointer = _pointer(context, builder, sig.args[0], args[0], i)
        value = _as_stored(context, builder, array, sig.args[2], args[2])
        context.pack_value(builder, array.dtype, value, pointer)
        return context.get_dummy_value()

    return types.void(array, i, value), code


def _from_unsigned(builder: Any, word: Any, zero: int) -> list[Any]:
    """Write four float32: the bytes of a word, less `zero`."""
    kind = ir.FunctionType(F32, [I32, I32, I32])
    line = ir.InlineAsm(kind, "prmt.b32 $0, $1, $2, $3;", "=f,r,r,r")
    exact = [
        builder.call(line, [word, I32(0x4B000000), I32(0x7540 + e)]) for e in range(4)
    ]
    less = ir.Constant(F32, float(2**23 + zero))
    return [builder.fsub(number, less) for number in exact]


@emulated(emulation.from_bytes)
def from_bytes(typing: Any, word: Any) -> Any:
    """Four float32 of a word of four int8.

    A number and 128 as the last bits of 2^23 is 2^23 + 128 + the number: a byte is put
    there, and the rest subtracted. Conversions take four times as long.
    """

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.xor(args[0], I32(0x80808080))
        items = _from_unsigned(builder, word, 128)
        return context.make_tuple(builder, sig.return_type, items)

    return types.UniTuple(types.float32, 4)(types.uint32), code


@emulated(emulation.from_fours)
def from_fours(typing: Any, word: Any) -> Any:
    """Eight float32 of four bytes 16 * high + low + 8: the four low ones first.

    As `from_bytes`: both halves of all bytes are made unsigned, and 8 too large.
    """

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        last, four, eights = I32(0x0F0F0F0F), I32(4), I32(0x08080808)
        low = builder.and_(args[0], last)
        high = builder.and_(builder.lshr(args[0], four), last)
        items = _from_unsigned(builder, low, 8)
        items += _from_unsigned(builder, builder.xor(high, eights), 8)
        return context.make_tuple(builder, sig.return_type, items)

    return types.UniTuple(types.float32, 8)(types.uint32), code


# -------------------------------------------------------------------------- warps


def _either(on_device: Callable, stand_in: Callable) -> Any:
    return stand_in if SIMULATED else device(on_device)


# All lanes of the warp must come to each of these; `cuda_ops/simulator/emulation.py`
# says what they give.
shuffle_xor = _either(
    lambda value, mask: cuda.shfl_xor_sync(ALL_LANES, value, mask),
    emulation.shuffle_xor,
)
shuffle_up = _either(
    lambda value, lanes: cuda.shfl_up_sync(ALL_LANES, value, lanes),
    emulation.shuffle_up,
)
shuffle = _either(
    lambda value, source: cuda.shfl_sync(ALL_LANES, value, source), emulation.shuffle
)
ballot = _either(lambda holds: cuda.ballot_sync(ALL_LANES, holds), emulation.ballot)
# Wait for all lanes of the warp, and see what they wrote to shared memory.
sync_warp = _either(lambda: cuda.syncwarp(), emulation.sync_warp)


@device
def add_equal(out, target, places, numbers, place, warp, tid, end):
    """out[target] += the numbers of all lanes of a warp that go to `place`, in order.

    `places` and `numbers`, in shared memory, are those of the lanes `warp` to `end - 1`
    of the block. Only the first lane of those with equal places adds, so that no two
    lanes write to one place, and the order of the additions is that of the lanes.
    """
    u = warp
    while load(places, u) != place:
        u += 1
    if u == tid:
        total = load(out, target)
        for u in range(tid, end):
            if load(places, u) == place:
                total += load(numbers, u)
        store(out, target, total)


@device
def is_last(places, place, tid, end):
    """Whether none of the lanes from tid + 1 to `end` has the place of lane tid, too.

    `places` are those of `add_equal`.
    """
    u = tid + 1
    while u < end and load(places, u) != place:
        u += 1
    return u == end


# ------------------------------------------------------------------- tensor cores


def tf32_word(builder: Any, x: Any) -> Any:
    """Write the rounding of a float32 to TF32, the 32-bit word for tensor cores."""
    kind = ir.FunctionType(I32, [F32])
    asm = ir.InlineAsm(kind, "cvt.rna.tf32.f32 $0, $1;", "=r,f")
    return builder.call(asm, [x])


# ------------------------------------------- registers read anew


@emulated(emulation.fresh)
def fresh(typing: Any, name: Any) -> Any:
    """`fresh("tid.x")`: a thread's or block's index, read at this very place.

    The compiler computes what follows from `cuda.threadIdx.x` once and keeps it, in
    registers that a long loop in between may need. It takes each fresh value for a new
    one. Names are "tid.x", "ctaid.x", "ctaid.y", "ctaid.z".
    """
    if not isinstance(name, types.StringLiteral):
        return None
    line = f"mov.u32 $0, %{name.literal_value};"

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(assembly(builder, line, I32, "=r", []), I64)

    return types.int64(name), code


# --------------------------------------------------------- the kernel before this one


@emulated(emulation.wait_for_previous)
def wait_for_previous(typing: Any) -> Any:
    """In a kernel that `overlaps`: wait until the kernel before it is over, and all
    that it wrote can be seen; then let the next one begin.

    All threads come here. Before it nothing may be read that the kernel before could
    write, and nothing written. As the next one begins only now, it runs beside this
    kernel alone: all older ones are over. (griddepcontrol, sm_90; before, nothing.)
    """

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for line in ("griddepcontrol.wait;", "griddepcontrol.launch_dependents;"):
            assembly(builder, line, ir.VoidType(), "~{memory}", [])
        return context.get_dummy_value()

    return types.void(), code


@emulated(emulation.prefetch)
def prefetch(typing: Any, array: Any, i: Any, count: Any) -> Any:
    """Let `count` elements from i on come to the second-level cache; nobody waits.

    Element i lies at a multiple of 16 bytes. One thread orders all of it. (sm_90;
    before, nothing.)
    """
    if not (_is_array(array) and isinstance(i, types.Integer)):
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i, count = (_index(context, builder, *x) for x in zip(sig.args[1:], args[1:]))
        pointer = _pointer(context, builder, sig.args[0], args[0], i)
        item = context.get_abi_sizeof(pointer.type.pointee)
        nbytes = builder.mul(count, ir.Constant(I64, item))
        nbytes = builder.trunc(builder.and_(nbytes, ir.Constant(I64, -16)), I32)
        line = (
            "{.reg .u64 at; cvta.to.global.u64 at, $0; "
            "cp.async.bulk.prefetch.L2.global [at], $1;}"
        )
        assembly(builder, line, ir.VoidType(), "l,r", [pointer, nbytes])
        return context.get_dummy_value()

    return types.void(array, i, count), code


@emulated(emulation.arrive)
def arrive(typing: Any, counter: Any, i: Any) -> Any:
    """Add 1 to counter[i], int32; how many came before.

    What this thread's block wrote before its last barrier can be seen by who comes
    later; and this block sees, behind its next barrier, what the earlier ones wrote.
    """
    if not (_is_array(counter) and isinstance(i, types.Integer)):
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i = _index(context, builder, sig.args[1], args[1])
        pointer = _pointer(context, builder, sig.args[0], args[0], i)
        line = "atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;"
        return assembly(builder, line, I32, "=r,l,~{memory}", [pointer])

    return types.int32(counter, i), code


# ------------------------------------- arrays at an address (for optim.py, sparse)


@emulated(emulation.array_at)
def array_at(typing: Any, pointer: Any, size: Any, like: Any) -> Any:
    """A flat array of `size` elements of the type of `like`, a number, at `pointer`."""
    if not isinstance(pointer, types.Integer):
        return None
    result = types.Array(like, 1, "C")

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array = context.make_array(result)(context, builder)
        item = context.get_abi_sizeof(context.get_data_type(result.dtype))
        length = context.cast(builder, args[1], sig.args[1], types.intp)
        step = ir.Constant(I64, item)
        array.data = builder.inttoptr(args[0], array.data.type)
        array.shape = cgutils.pack_array(builder, [length])
        array.strides = cgutils.pack_array(builder, [step])
        array.itemsize = step
        array.nitems = length
        return array._getvalue()

    return result(pointer, size, like), code


# ------------------------------------------------------------------------ types


@emulated(emulation.kind_of)
def kind_of(typing: Any, array: Any) -> Any:
    """The type in which elements of an array are computed, for arrays of one's own."""
    if not isinstance(array, types.Array):
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_dummy_value()

    return types.DType(computed(array.dtype))(array), code


@emulated(emulation.same_type)
def same_type(typing: Any, value: Any, like: Any) -> Any:
    """`value`, a number, converted to the type of `like`."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[0], value, like)

    return like(value, like), code
