"""Tensor maps: what Hopper's copy engine has to know of an array in memory.

With this file one can hand a kernel a map of a flat array as up to four dimensions
(`TensorMap`), from which one thread then orders boxes of it into shared memory
(`block/tma.py`). A map is 128 bytes that only the driver can write (`encoded`). A
launch copies them, as it copies numbers, and the kernel gets their address: to C++ that
is a parameter with `__grid_constant__`. So nobody has to keep a map.

Source: "CUDA driver API", on tensor maps; "NVVM IR", on grid_constant.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

from numba import types

from cuda_ops.runtime import device
from cuda_ops.runtime.arrays import BITS
from cuda_ops.simulator import SIMULATED

WORDS = 16  # of 64 bits


class TensorMapType(types.Type):
    """What a map is in a kernel: its address."""


TENSOR_MAP = TensorMapType("tensor_map")

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import cgutils
    from numba.cuda.extending import models, register_model

    POINTER = ir.PointerType(ir.ArrayType(ir.IntType(64), WORDS))

    @register_model(TensorMapType)
    class TensorMapModel(models.PrimitiveModel):
        """The address of 128 bytes."""

        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, POINTER)


def by_value(kernel: Any) -> None:
    """Make those parameters of a kernel that are maps 128 bytes, not an address.

    Without the note `grid_constant` each thread would make a copy of its own.
    """
    maps = [i for i, arg in enumerate(kernel.args) if arg.type == POINTER]
    if not maps:
        return
    for i in maps:
        # NVVM's LLVM is so old that `byval` has no type; llvmlite would write one.
        set.add(kernel.args[i].attributes, "byval ")
        kernel.args[i].attributes.align = 64
    places = [ir.Constant(ir.IntType(32), i + 1) for i in maps]
    note = ir.MetaDataString(kernel.module, "grid_constant")
    of_kernel = (kernel, note, kernel.module.add_metadata(places))
    notes = cgutils.get_or_insert_named_metadata(kernel.module, "nvvm.annotations")
    notes.add(kernel.module.add_metadata(of_kernel))


class TensorMap:
    """A flat array as four dimensions, the one without gaps first.

    Args:
        array: it, of float32, which a copy rounds to TF32, or of 16 bits, which it
            takes as words; `at` is the first element of the dims.
        shape: four sizes.
        strides: of the last three, in elements: multiples of 16 bytes, above 0.
        box: sizes of what one copy fetches. Its lines are 128 bytes, and what is
            outside of `shape` becomes zeros.
    """

    __slots__ = ("array", "at", "box", "shape", "strides", "words")

    word: ClassVar[str] = "tensor_map"

    def __init__(
        self, array: Any, at: int, shape: tuple[int, ...], strides: tuple[int, ...],
        box: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.array, self.at = array, at
        self.shape, self.strides, self.box = shape, strides, box
        size = array.itemsize
        if SIMULATED:
            self.array = array if size == 4 else array.view(BITS.numpy)
        else:
            self.words = encoded(array.pointer + size * at, shape, strides, box, size)


@lru_cache(maxsize=4096)
def encoded(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...],
    box: tuple[int, ...], size: int,
) -> tuple[int, ...]:  # fmt: skip
    """The driver's map of elements of `size` bytes from an address on, 16 numbers."""
    api = device.driver()
    long, word = api.cuuint64_t, api.cuuint32_t
    kind = "TFLOAT32" if size == 4 else "UINT16"
    made = device.call(
        f"making a map of {shape} elements with the strides {strides}",
        api.cuTensorMapEncodeTiled,
        getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
        len(shape), address, [long(n) for n in shape],
        [long(size * n) for n in strides],
        [word(n) for n in box], [word(1)] * len(shape),
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    return tuple(map(int, made.opaque))
