"""What a GPU can do and Python has no words for: vectors, warps, tensor cores.

With this file a kernel can move 16 bytes at once (`load4`, `store4`), let the 32
threads of a warp exchange values (`shuffle_xor`, `warp_sum`), copy to shared memory
without waiting (`cp_async16`) and use tensor cores (`mma_tf32`).

A function decorated with `@emulated` writes LLVM code; in the simulator the function of
the same name in `cuda_ops/simulator/emulation.py` runs instead. A function decorated
with `@device` is plain Python on top of them.

    x0, x1, x2, x3 = load4(array, i)       i counts elements; array[i] is aligned

Unlike `array[i]`, these do not take a negative index to count from the end, which saves
a comparison and an addition for each access.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, types

from cuda_ops.simulator import SIMULATED, emulation

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import cgutils
    from numba.cuda.extending import intrinsic

WARP = 32
ALL_LANES = 0xFFFFFFFF


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
    bits = 0
    for array in arrays:
        bits |= array.pointer
    return bits % 16 == 0


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
        result = types.UniTuple(array.dtype, count)

        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            i = _index(context, builder, sig.args[1], args[1])
            pointer = _pointer(context, builder, sig.args[0], args[0], i)
            model = context.data_model_manager[array.dtype]
            vector = ir.VectorType(context.get_data_type(array.dtype), count)
            pointer = builder.bitcast(pointer, _pointer_to(vector, pointer))
            both = builder.load(pointer, align=_alignment(array.dtype, count))
            items = [
                model.from_data(
                    builder, builder.extract_element(both, ir.Constant(I32, k))
                )
                for k in range(count)
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
            value = context.cast(builder, args[2 + k], sig.args[2 + k], kind.dtype)
            both = builder.insert_element(
                both, model.as_data(builder, value), ir.Constant(I32, k)
            )
        builder.store(both, pointer, align=_alignment(kind.dtype, count))
        return context.get_dummy_value()

    return write


def _pointer_to(kind: Any, pointer: Any) -> Any:
    return ir.PointerType(kind, pointer.type.addrspace)


def _alignment(dtype: Any, count: int) -> int:
    """Bytes to which an address of `count` elements is aligned; a bool is one byte."""
    return min(16, count * (getattr(dtype, "bitwidth", 8) // 8))


if not SIMULATED:
    I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
    F32 = ir.FloatType()


@emulated(emulation.load4)
def load4(typing: Any, array: Any, i: Any) -> Any:
    """`x0, x1, x2, x3 = load4(array, i)`: 16 bytes at once, of 4-byte elements."""
    return _load_vector(4)(typing, array, i)


@emulated(emulation.load2)
def load2(typing: Any, array: Any, i: Any) -> Any:
    """`x0, x1 = load2(array, i)`: 16 bytes at once, of 8-byte elements."""
    return _load_vector(2)(typing, array, i)


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
        return context.unpack_value(builder, array.dtype, pointer)

    return array.dtype(array, i), code


@emulated(emulation.store)
def store(typing: Any, array: Any, i: Any, value: Any) -> Any:
    """array[i] = value for i >= 0"""
    if not (_is_array(array) and isinstance(i, types.Integer)):
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i = _index(context, builder, sig.args[1], args[1])
        pointer = _pointer(context, builder, sig.args[0], args[0], i)
        cast = context.cast(builder, args[2], sig.args[2], array.dtype)
        context.pack_value(builder, array.dtype, cast, pointer)
        return context.get_dummy_value()

    return types.void(array, i, value), code


# -------------------------------------------------------------------------- warps


def _shuffle_xor(value: Any, mask: int) -> Any:
    """The value of lane `lane ^ mask`; all lanes of the warp must come here."""
    return cuda.shfl_xor_sync(ALL_LANES, value, mask)


def _shuffle_down(value: Any, lanes: int) -> Any:
    """The value of the lane `lanes` above, or one's own where there is none."""
    return cuda.shfl_down_sync(ALL_LANES, value, lanes)


def _shuffle_up(value: Any, lanes: int) -> Any:
    """The value of the lane `lanes` below, or one's own where there is none."""
    return cuda.shfl_up_sync(ALL_LANES, value, lanes)


def _shuffle(value: Any, source: int) -> Any:
    """The value of lane `source`."""
    return cuda.shfl_sync(ALL_LANES, value, source)


def _ballot(condition: Any) -> int:
    """A bit for each lane: whether its condition holds."""
    return cuda.ballot_sync(ALL_LANES, condition)


def _sync_warp() -> None:
    """Wait for all lanes of the warp, and see what they wrote to shared memory."""
    cuda.syncwarp()


def _warp_index() -> int:
    """The warp's place in its block."""
    thread = cuda.threadIdx.x + cuda.blockDim.x * (
        cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z
    )
    return thread // 32


def _lane_index() -> int:
    """The thread's place in its warp, 0 to 31."""
    return cuda.laneid


def _either(on_device: Callable, stand_in: Callable) -> Any:
    return stand_in if SIMULATED else device(on_device)


shuffle_xor = _either(_shuffle_xor, emulation.shuffle_xor)
shuffle_down = _either(_shuffle_down, emulation.shuffle_down)
shuffle_up = _either(_shuffle_up, emulation.shuffle_up)
shuffle = _either(_shuffle, emulation.shuffle)
ballot = _either(_ballot, emulation.ballot)
sync_warp = _either(_sync_warp, emulation.sync_warp)
lane_index = _either(_lane_index, emulation.lane_index)
warp_index = _either(_warp_index, emulation.warp_index)


@device
def warp_sum(x: Any) -> Any:
    """The sum over all lanes of the warp, in every lane, always in the same order."""
    x += shuffle_xor(x, 16)
    x += shuffle_xor(x, 8)
    x += shuffle_xor(x, 4)
    x += shuffle_xor(x, 2)
    x += shuffle_xor(x, 1)
    return x


@device
def warp_max(x: Any) -> Any:
    """The largest value of all lanes, in every lane; NaN wins."""
    y = shuffle_xor(x, 16)
    x = x if x > y or x != x else y
    y = shuffle_xor(x, 8)
    x = x if x > y or x != x else y
    y = shuffle_xor(x, 4)
    x = x if x > y or x != x else y
    y = shuffle_xor(x, 2)
    x = x if x > y or x != x else y
    y = shuffle_xor(x, 1)
    return x if x > y or x != x else y


@device
def warp_min(x: Any) -> Any:
    """The smallest value of all lanes, in every lane; NaN wins."""
    y = shuffle_xor(x, 16)
    x = x if x < y or x != x else y
    y = shuffle_xor(x, 8)
    x = x if x < y or x != x else y
    y = shuffle_xor(x, 4)
    x = x if x < y or x != x else y
    y = shuffle_xor(x, 2)
    x = x if x < y or x != x else y
    y = shuffle_xor(x, 1)
    return x if x < y or x != x else y


# ------------------------------------------------- copies that nobody waits for


@emulated(emulation.cp_async16)
def cp_async16(
    typing: Any, shared: Any, i: Any, array: Any, j: Any, inside: Any
) -> Any:
    """16 bytes from array[j] on to shared[i] on, without a register (sm_80).

    Zeros are written where `inside` is False; array[j] is not read then. Both places
    are aligned to 16 bytes. See `cp_async_wait`.
    """
    if not (_is_array(shared) and _is_array(array)):
        return None

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i = _index(context, builder, sig.args[1], args[1])
        j = _index(context, builder, sig.args[3], args[3])
        to = _pointer(context, builder, sig.args[0], args[0], i)
        start = _pointer(context, builder, sig.args[2], args[2], j)
        to = builder.addrspacecast(to, ir.PointerType(to.type.pointee, 3))
        inside = context.cast(builder, args[4], sig.args[4], types.boolean)
        size = builder.select(inside, ir.Constant(I32, 16), ir.Constant(I32, 0))
        kind = ir.FunctionType(ir.VoidType(), [I32, I64, I32])
        text = "cp.async.cg.shared.global [$0], [$1], 16, $2;"
        asm = ir.InlineAsm(kind, text, "r,l,r,~{memory}", side_effect=True)
        start = builder.addrspacecast(start, ir.PointerType(start.type.pointee, 1))
        values = [builder.ptrtoint(to, I32), builder.ptrtoint(start, I64), size]
        builder.call(asm, values)
        return context.get_dummy_value()

    return types.void(shared, i, array, j, inside), code


def _statement(text: str) -> Callable:
    """Code for one line of assembly without operands."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(ir.InlineAsm(kind, text, "~{memory}", side_effect=True), [])
        return context.get_dummy_value()

    return code


@emulated(emulation.cp_async_commit)
def cp_async_commit(typing: Any) -> Any:
    """The copies since the last commit are one group."""
    return types.void(), _statement("cp.async.commit_group;")


@emulated(emulation.cp_async_wait)
def cp_async_wait(typing: Any, groups: Any) -> Any:
    """Wait until at most `groups` (a literal) of this thread's groups are under way.

    Other threads' copies are seen after the next barrier.
    """
    if not isinstance(groups, types.IntegerLiteral):
        return None
    line = f"cp.async.wait_group {groups.literal_value};"
    return types.void(groups), _statement(line)


# ------------------------------------------------------------------- tensor cores


def tf32_word(builder: Any, x: Any) -> Any:
    """Write the rounding of a float32 to TF32, the 32-bit word for tensor cores."""
    kind = ir.FunctionType(I32, [F32])
    asm = ir.InlineAsm(kind, "cvt.rna.tf32.f32 $0, $1;", "=r,f")
    return builder.call(asm, [x])


@emulated(emulation.to_tf32)
def to_tf32(typing: Any, x: Any) -> Any:
    """x rounded to TF32: 8 bits of exponent, 10 of fraction (sm_80)."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(tf32_word(builder, args[0]), F32)

    return types.float32(types.float32), code


@emulated(emulation.mma_tf32)
def mma_tf32(
    typing: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any,
    c0: Any, c1: Any, c2: Any, c3: Any,
) -> Any:  # fmt: skip
    """`d0, d1, d2, d3 = mma_tf32(a0..a3, b0, b1, c0..c3)`: D = A @ B + C (sm_80).

    A [16, 8], B [8, 8], C and D [16, 8], spread over the warp. With g = lane // 4 and
    t = lane % 4 a lane holds

        a0 = A[g, t]       a1 = A[g + 8, t]      a2 = A[g, t + 4]  a3 = A[g + 8, t + 4]
        b0 = B[t, g]       b1 = B[t + 4, g]
        c0 = C[g, 2t]      c1 = C[g, 2t + 1]     c2 = C[g + 8, 2t] c3 = C[g + 8, 2t + 1]

    All are float32; of A and B the upper 19 bits are read (round with `to_tf32`).

    Source: NVIDIA, "Parallel Thread Execution ISA", matrix fragments of mma.m16n8k8.
    """
    result = types.UniTuple(types.float32, 4)

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = [builder.bitcast(x, I32) for x in args[:6]]
        out = ir.LiteralStructType([F32] * 4)
        kind = ir.FunctionType(out, [I32] * 6 + [F32] * 4)
        text = (
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
        )
        places = "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"
        asm = ir.InlineAsm(kind, text, places, side_effect=True)
        made = builder.call(asm, bits + list(args[6:]))
        items = [builder.extract_value(made, k) for k in range(4)]
        return context.make_tuple(builder, sig.return_type, items)

    return result(*[types.float32] * 10), code


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
        asm = ir.InlineAsm(ir.FunctionType(I32, []), line, "=r", side_effect=True)
        return builder.zext(builder.call(asm, []), I64)

    return types.int64(name), code


# ------------------------------------- arrays at an address (for optim.py, sparse)


@emulated(emulation.array_at)
def array_at(typing: Any, pointer: Any, size: Any, like: Any) -> Any:
    """A flat array of `size` elements of the type of `like`, a number, at `pointer`."""
    if not isinstance(pointer, types.Integer):
        return None
    result = types.Array(like, 1, "C")

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = context.make_array(result)(context, builder)
        item = context.get_abi_sizeof(context.get_data_type(result.dtype))
        length = context.cast(builder, args[1], sig.args[1], types.intp)
        step = ir.Constant(I64, item)
        made.data = builder.inttoptr(args[0], made.data.type)
        made.shape = cgutils.pack_array(builder, [length])
        made.strides = cgutils.pack_array(builder, [step])
        made.itemsize = step
        made.nitems = length
        return made._getvalue()

    return result(pointer, size, like), code


# ------------------------------------------------------------------------ types


@emulated(emulation.same_type)
def same_type(typing: Any, value: Any, like: Any) -> Any:
    """`value`, a number, converted to the type of `like`."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[0], value, like)

    return like(value, like), code
