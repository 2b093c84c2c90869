"""DLPack for bfloat16, which NumPy cannot lend or borrow.

With this file arrays of the host go to other libraries (`capsule_of`) and come from
them (`array_of`). What NumPy does not know travels as 16-bit words, and only the name
of the type is written into, or read from, the struct that travels.

Source: DMLC, "DLPack: Open In Memory Tensor Structure".
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from minitorch.dtypes import bfloat16

NAME = b"dltensor"
WORD, BFLOAT = 1, 4  # DLPack's codes of unsigned integers and of bfloat
WORDS = np.dtype(np.uint16)


class DLTensor(ctypes.Structure):
    """Where a tensor is, and how it lies."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def tensor_in(capsule: Any) -> Any:
    """The struct of a capsule that nobody has used."""
    return ctypes.cast(pointer(capsule, NAME), ctypes.POINTER(DLTensor)).contents


def capsule_of(array: np.ndarray, **options: Any) -> Any:
    """A capsule with the array's memory; `options` are those of `__dlpack__`."""
    if array.dtype != bfloat16.numpy:
        return array.__dlpack__(**options)
    options.pop("max_version", None)  # any borrower takes the first form
    capsule = array.view(WORDS).__dlpack__(**options)
    tensor_in(capsule).code = BFLOAT
    return capsule


def array_of(source: Any) -> np.ndarray:
    """An array on the memory of another library's tensor on the CPU."""
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError):  # no type of NumPy's, it says
        capsule = source.__dlpack__()
        if tensor_in(capsule).code != BFLOAT:
            raise
    tensor_in(capsule).code = WORD
    words = np.from_dlpack(_Sealed(capsule))
    if words.dtype != WORDS:
        raise TypeError("from_dlpack: floats of this size have no counterpart here")
    return np.asarray(_Writeable(words)).view(bfloat16.numpy)


class _Sealed:
    """A capsule as NumPy asks for it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU


class _Writeable:
    """The memory of an array that NumPy takes to be for reading alone."""

    def __init__(self, array: np.ndarray) -> None:
        facts = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**facts, "data": (facts["data"][0], False)}
