"""Types of 16-bit numbers in kernels: float32 when they are read, rounded when written.

With this file a kernel can take arrays of float16 and bfloat16 as it takes those of
float32: `load`, `load4`, `store`, ... (`cuda_ops/block/intrinsics.py`) convert what is
in an array of such a type (`HALVES`), on the way between memory and registers. So one
template reads and writes all floating types, and computes in float32:

    2 bytes --load--> float32 --fn--> float32 --store--> 2 bytes

Kernels that only move numbers, or hand them to tensor cores, take their words (`bits`
in `cuda_ops/half.py`, which also says how rounding goes).
"""

from __future__ import annotations

from typing import Any

from numba import types

from cuda_ops.simulator import SIMULATED


class Half(types.Type):
    """What 16-bit numbers are in arrays. Nothing can be computed with them there."""

    bitwidth = 16


HALVES = {name: Half(name) for name in ("float16", "bfloat16")}
FLOAT16, BFLOAT16 = HALVES.values()

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda.core.targetconfig import ConfigStack
    from numba.cuda.extending import models, register_model

    I16, I32, F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()

    @register_model(Half)
    class HalfModel(models.PrimitiveModel):
        """Words of 16 bits, in memory and in registers."""

        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, I16)


def computed(kind: Any) -> Any:
    """The type in which a kernel has the elements of an array of `kind`."""
    return types.float32 if isinstance(kind, Half) else kind


def widened(builder: Any, kind: Any, value: Any) -> Any:
    """Write the conversion of what was loaded from an array of `kind`."""
    if kind == FLOAT16:
        return _convert(builder, "cvt.f32.f16 $0, $1;", "=f,h", F32, value)
    if kind == BFLOAT16:
        word = builder.shl(builder.zext(value, I32), I32(16))
        return builder.bitcast(word, F32)
    return value


def narrowed(builder: Any, kind: Any, value: Any) -> Any:
    """Write the rounding of a number that goes into an array of `kind`.

    Chips before sm_80 have no instruction that rounds to bfloat16: see `to_bfloat16`.
    """
    if kind == FLOAT16:
        return _convert(builder, "cvt.rn.f16.f32 $0, $1;", "=h,f", I16, value)
    if kind != BFLOAT16:
        return value
    if ConfigStack().top().compute_capability >= (8, 0):
        return _convert(builder, "cvt.rn.bf16.f32 $0, $1;", "=h,f", I16, value)
    word = builder.bitcast(value, I32)
    high = builder.lshr(word, I32(16))
    carry = builder.add(builder.and_(high, I32(1)), I32(0x7FFF))
    near = builder.lshr(builder.add(word, carry), I32(16))
    nan = builder.fcmp_unordered("uno", value, value)
    near = builder.select(nan, builder.or_(high, I32(0x40)), near)
    return builder.trunc(near, I16)


def _convert(builder: Any, line: str, registers: str, kind: Any, value: Any) -> Any:
    asm = ir.InlineAsm(ir.FunctionType(kind, [value.type]), line, registers)
    return builder.call(asm, [value])
