"""Numbers of 16 bits to and from float32.

With this file a kernel can read a float16 or bfloat16 (`from_float16`,
`from_bfloat16`) and round to one (`to_float16`, `to_bfloat16`), and
`cuda_ops/memory.py` rounds whole arrays (`convert`). Here such a number is its bits, a
uint16 (`bits`). Most kernels leave all this to `load` and `store`
(`cuda_ops/runtime/halves.py`).

A bfloat16 is the upper half of a float32, so that reading one is a shift. Rounding to
the nearest, ties to the even one, is an addition before the shift back:

    sign exponent fraction      what is cut off     less than half: add nothing that
      s  eeeeeeee fffffff f0    xxxxxxxxxxxxxxxx    counts; half: make it even;
                        |                           more: carry one into f0
                        +-- f0 + 0x7FFF

which needs no instruction that chips before sm_80 lack. float16 has its own: `cvt`.

Source: Kalamkar et al., "A study of bfloat16 for deep learning training", 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, int64, types, uint16, uint32

from cuda_ops.block.intrinsics import (
    device,
    emulated,
    is_aligned,
    load,
    load4,
    store,
    store4,
)
from cuda_ops.runtime.arrays import BITS, WordArray
from cuda_ops.runtime.launch import SIMULATED, TINY, Kernel, ceil_div
from cuda_ops.simulator import emulation
from minitorch.dtypes import DType, bfloat16, float16, float32

if not SIMULATED:
    from llvmlite import ir

    I16, I32, F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()

THREADS = 32 if TINY else 128


def bits(array: Any) -> Any:
    """A flat array for kernels that convert nothing: words for numbers of 16 bits."""
    if array.itemsize != 2:
        return array
    if SIMULATED:
        return array.view(BITS.numpy)
    return WordArray(array.pointer, array.shape[0], None, array)


# -------------------------------------------------------------------- one number


@emulated(emulation.word_of)
def word_of(typing: Any, x: Any) -> Any:
    """The bits of a float32, as uint32."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], I32)

    return types.uint32(types.float32), code


@emulated(emulation.float_of)
def float_of(typing: Any, word: Any) -> Any:
    """The float32 with these bits, a uint32."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], F32)

    return types.float32(types.uint32), code


@emulated(emulation.to_float16)
def to_float16(typing: Any, x: Any) -> Any:
    """A float32 rounded to float16, the nearest, as its bits."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(I16, [F32])
        line = ir.InlineAsm(kind, "cvt.rn.f16.f32 $0, $1;", "=h,f")
        return builder.call(line, args)

    return types.uint16(types.float32), code


@emulated(emulation.from_float16)
def from_float16(typing: Any, number: Any) -> Any:
    """The float32 that the bits of a float16 stand for."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(F32, [I16])
        line = ir.InlineAsm(kind, "cvt.f32.f16 $0, $1;", "=f,h")
        return builder.call(line, args)

    return types.float32(types.uint16), code


@device
def to_bfloat16(x):
    """A float32 rounded to bfloat16, the nearest, as its bits."""
    # BEGIN SOLUTION a11.4
    word = word_of(x)
    if x != x:  # adding could turn NaN into infinity
        return uint16((word >> uint32(16)) | uint32(0x40))
    odd = (word >> uint32(16)) & uint32(1)
    return uint16((word + uint32(0x7FFF) + odd) >> uint32(16))
    # END SOLUTION a11.4


@device
def from_bfloat16(number):
    """The float32 that the bits of a bfloat16 stand for."""
    return float_of(uint32(uint32(number) << uint32(16)))


# What kernels that take words read.
READERS = {
    float32: device(lambda x: x),
    bfloat16: from_bfloat16,
    float16: from_float16,
}

# -------------------------------------------------------------------- whole arrays


def convert_flat(fn: Callable) -> Callable:
    """Make a kernel of a rounding: out[i] = fn(a[i])

    # a [N] -> out [N]

    A thread rounds four neighbours, which it reads and writes at once if `vectors`: 16
    bytes on the one side, 8 on the other.
    """

    def convert(a, out, vectors):
        i = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * 4
        if not vectors or i + 4 > out.size:
            for j in range(4):
                if i + j < out.size:
                    store(out, i + j, fn(load(a, i + j)))
        else:
            x0, x1, x2, x3 = load4(a, i)
            store4(out, i, fn(x0), fn(x1), fn(x2), fn(x3))

    return convert


ROUND = {
    dtype: Kernel(
        convert_flat(fn),
        f"convert_flat[to_{dtype.name}]",
        ["float32[] uint16[] bool"],
        THREADS,
    )
    for dtype, fn in ((float16, to_float16), (bfloat16, to_bfloat16))
}


def convert(out: Any, a: Any, dtype: DType) -> None:
    """out[...] = a, flat arrays of the half type `dtype` and of float32."""
    ROUND[dtype][ceil_div(len(out), 4 * THREADS), THREADS](
        a, bits(out), is_aligned(a, out)
    )
