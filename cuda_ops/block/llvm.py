"""A little LLVM: how a function for kernels is written down as instructions.

With this file one can write a function that a kernel calls as the instructions that it
stands for, unrolled by loops in Python (`written`):

    @written(lambda array: types.UniTuple(types.float32, 4)(array))
    def read_four(builder, array):
        return load(builder, array, 0, 4)

and put loads, stores and lines of assembly into it. In the simulator none of this runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cuda_ops.simulator import SIMULATED

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.extending import intrinsic

# Address spaces of LLVM's NVPTX target.
GLOBAL, SHARED = 1, 3


def written(signature: Callable, space: int = SHARED) -> Callable[[Callable], Any]:
    """Decorate a function that writes instructions: `code(builder, *arguments)`.

    `code` gets an array as the pointer to its first element in the address space, a
    tuple as a list, a boolean as one bit. What it returns, a list for a tuple, is the
    value of the call. `signature(*types)` is Numba's.
    """

    def decorate(code: Callable) -> Any:
        def typed(typing: Any, *kinds: Any) -> Any:
            def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                opened = [
                    _opened(context, builder, kind, value, space)
                    for kind, value in zip(sig.args, args)
                ]
                out = code(builder, *opened)
                if out is None:
                    return context.get_dummy_value()
                return cgutils.pack_array(builder, out) if type(out) is list else out

            return signature(*kinds), generate

        typed.__name__ = typed.__qualname__ = code.__name__
        typed.__signature__ = inspect.signature(code)  # type: ignore[attr-defined]
        return intrinsic(typed)

    return decorate


def _opened(context: Any, builder: Any, kind: Any, value: Any, space: int) -> Any:
    """An argument as `written` says."""
    if isinstance(kind, types.Array):
        data = context.make_array(kind)(context, builder, value).data
        return builder.addrspacecast(
            data, ir.PointerType(data.type.pointee, addrspace=space)
        )
    if isinstance(kind, types.BaseTuple):
        return [builder.extract_value(value, i) for i in range(len(kind))]
    if isinstance(kind, types.Boolean) and value.type != ir.IntType(1):
        return builder.trunc(value, ir.IntType(1))
    return value


def constant(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def size_of(kind: Any) -> int:
    """Bytes of a number."""
    if isinstance(kind, ir.IntType):
        return kind.width // 8
    return 4 if isinstance(kind, ir.FloatType) else 8


def _vector_pointer(builder: Any, pointer: Any, count: int) -> Any:
    kind = ir.VectorType(pointer.type.pointee, count)
    return builder.bitcast(pointer, ir.PointerType(kind, pointer.type.addrspace))


def load(builder: Any, pointer: Any, offset: int, count: int) -> list[Any]:
    """`count` neighbours, from an address that is a multiple of their bytes."""
    at = builder.gep(pointer, [constant(offset)])
    value = builder.load(_vector_pointer(builder, at, count))
    value.align = count * size_of(pointer.type.pointee)
    lane = ir.IntType(32)
    return [builder.extract_element(value, ir.Constant(lane, i)) for i in range(count)]


def store(builder: Any, values: list[Any], pointer: Any) -> None:
    """The reverse of `load`."""
    count = len(values)
    vector = ir.Constant(ir.VectorType(pointer.type.pointee, count), ir.Undefined)
    for i, value in enumerate(values):
        vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), i))
    stored = builder.store(vector, _vector_pointer(builder, pointer, count))
    stored.align = count * size_of(pointer.type.pointee)


def multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z: one `fma` instruction for floats."""
    if isinstance(x.type, ir.IntType):
        return builder.add(builder.mul(x, y), z)
    return builder.fma(x, y, z)


def unpack(builder: Any, tuple_value: Any, count: int) -> list[Any]:
    return [builder.extract_value(tuple_value, i) for i in range(count)]


def pack(builder: Any, *parts: list[Any]) -> Any:
    """A tuple of tuples of float32."""
    kinds = [ir.ArrayType(ir.FloatType(), len(part)) for part in parts]
    out = ir.Constant(ir.LiteralStructType(kinds), ir.Undefined)
    for i, part in enumerate(parts):
        for j, value in enumerate(part):
            out = builder.insert_value(out, value, [i, j])
    return out


def shared_address(builder: Any, pointer: Any) -> Any:
    """A shared-memory address as the 32-bit number that instructions take."""
    return builder.trunc(builder.ptrtoint(pointer, ir.IntType(64)), ir.IntType(32))


def assembly(builder: Any, text: str, kind: Any, constraints: str, args: Any) -> Any:
    """Lines of PTX, with the value that they leave behind."""
    inline = ir.InlineAsm(
        ir.FunctionType(kind, [arg.type for arg in args]), text, constraints, True
    )
    return builder.call(inline, args)


def read_lane(builder: Any) -> Any:
    """The thread's place in its warp."""
    lane = assembly(builder, "mov.u32 $0, %laneid;", ir.IntType(32), "=r", [])
    return builder.zext(lane, ir.IntType(64))


def anew(builder: Any, x: Any) -> Any:
    """A 64-bit x, of which the compiler does not know that it was here before.

    What follows from it is computed here each time, and kept in no register through a
    loop.
    """
    return assembly(builder, "mov.b64 $0, $1;", x.type, "=l,l", [x])
