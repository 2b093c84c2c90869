"""Share GPU memory with other libraries, without a copy.

With this file one can hand a tensor to torch or CuPy (`to_dlpack`), take one of theirs
(`from_dlpack`), and take anything that has a `__cuda_array_interface__`
(`from_cuda_array`).

DLPack is a C struct with an address, a shape and strides, and a function to call when
the borrower is done. It travels in a Python capsule. Both are made with ctypes here.

Source: DMLC, "DLPack: Open In Memory Tensor Structure"; Python array API standard,
"Data interchange mechanisms".
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cuda_ops.runtime import device
from cuda_ops.runtime.arrays import ARRAYS
from cuda_ops.simulator import SIMULATED
from minitorch import dtypes
from minitorch.backend.dlpack import NAME, DLTensor, capsule_of, pointer
from minitorch.dtypes import DType, from_numpy_dtype
from minitorch.tensor_data import Shape, Storage, Strides, TensorData

CUDA = 2  # kDLCUDA, the type of a device
CPU = 1
# Kinds of elements, by NumPy's letter; bfloat16 has that of what is not NumPy's.
CODES = {"i": 0, "u": 1, "f": 2, "V": 4, "b": 6}


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Managed._fields_ = (  # it refers to itself, so it comes after the class
    ("tensor", DLTensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
)

USED = b"used_dltensor"
_lent: dict[int, Any] = {}  # what is borrowed, by the address of its struct

# The same functions twice: a capsule that is being deleted must be passed as an
# address, because a reference to it would bring it back to life.
_new = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)


@_Deleter
def _give_back(managed: Any) -> None:
    """The borrower is done."""
    _lent.pop(ctypes.addressof(managed.contents), None)


@_Destructor
def _capsule_gone(capsule: int) -> None:
    """Nobody borrowed what was in the capsule."""
    if _valid_at(capsule, NAME):
        _lent.pop(_pointer_at(capsule, NAME), None)


# ------------------------------------------------------------------------- lending


def dlpack_device(a: TensorData) -> tuple[int, int]:
    """DLPack's name for where `a` is."""
    return (CPU, 0) if SIMULATED else (CUDA, _index(a))


def _index(a: TensorData) -> int:
    return int(a.device.partition(":")[2])


def to_dlpack(a: TensorData, stream: int | None = None, **options: Any) -> Any:
    """A capsule with a's memory, for `from_dlpack` of another library.

    Args:
        stream: the borrower's stream, as the array API standard has it; it is made to
            wait for the work that is under way here.
        options: `max_version`, `dl_device` and `copy` of the standard; a copy, or
            another device, is refused.
    """
    if SIMULATED:
        return capsule_of(a.array())
    if options.get("copy") or options.get("dl_device") not in (None, dlpack_device(a)):
        raise BufferError(
            "__dlpack__: memory is shared where it is; for a copy, or for another "
            "device, use .clone() or .to(device) first"
        )
    _let_wait(stream)
    return _capsule(a)


def _capsule(a: TensorData) -> Any:
    dims = ctypes.c_int64 * max(len(a.shape), 1)
    shape, strides = dims(*a.shape), dims(*a.strides)
    array = a.storage.array
    made = _Managed()
    made.tensor = DLTensor(
        array.pointer + a.offset * array.itemsize, CUDA, _index(a),
        len(a.shape), CODES[array.dtype.kind], 8 * array.itemsize, 1, shape, strides, 0,
    )  # fmt: skip
    made.deleter = _give_back
    _lent[ctypes.addressof(made)] = (made, shape, strides, a)
    return _new(
        ctypes.addressof(made), NAME, ctypes.cast(_capsule_gone, ctypes.c_void_p)
    )


def _let_wait(stream: int | None) -> None:
    """Let the borrower's stream wait for the current one, if they differ."""
    if stream == -1:  # the borrower wants no waiting
        return
    key = {None: 0, 1: 0}.get(stream, stream)
    if key != device.current.key:
        device.order(device.current.handle, device.driver().CUstream(key or 0))


def cuda_array_interface(a: TensorData) -> dict[str, Any]:
    """What `__cuda_array_interface__` of a tensor says."""
    array = a.storage.array
    return {
        "shape": a.shape,
        "typestr": array.dtype.str,
        "data": (array.pointer + a.offset * array.itemsize, False),
        "strides": tuple(step * array.itemsize for step in a.strides),
        "version": 3,
        "stream": device.current.key or 1,
    }


# ----------------------------------------------------------------------- borrowing


class _Borrowed:
    """Keeps another library's memory, until it is deleted."""

    def __init__(self, managed: Any, source: Any) -> None:
        self.managed = managed
        self.source = source

    def __del__(self) -> None:
        if self.managed is not None and self.managed.contents.deleter:
            self.managed.contents.deleter(self.managed)


def from_dlpack(source: Any) -> TensorData:
    """A tensor on the memory of another library's GPU tensor.

    Raises:
        TypeError: its elements have no counterpart here.
        ValueError: it is on no GPU, or lies backwards in memory.
    """
    kind, index = source.__dlpack_device__()
    if kind != CUDA:
        raise ValueError(
            f"from_dlpack: the tensor is on device ({kind}, {index}) of DLPack; "
            f"expected a GPU, ({CUDA}, 0) for example"
        )
    with device.on(device.gpu(index)):
        return _borrow(source)


def _borrow(source: Any) -> TensorData:
    """A tensor on the memory of a tensor of the current GPU."""
    capsule = source.__dlpack__(stream=device.current.key or 1)
    if not _valid(capsule, NAME):
        raise ValueError("from_dlpack: the capsule has been used before")
    managed = ctypes.cast(pointer(capsule, NAME), ctypes.POINTER(_Managed))
    _rename(capsule, USED)
    keep = _Borrowed(managed, source)
    tensor = managed.contents.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    address = (tensor.data or 0) + tensor.byte_offset
    return _wrap(address, _dtype(tensor), shape, strides, keep)


def _dtype(tensor: Any) -> DType:
    for dtype in dtypes.ALL:
        code, bits = CODES[dtype.numpy.kind], 8 * dtype.itemsize
        if (tensor.code, tensor.bits, tensor.lanes) == (code, bits, 1):
            return dtype
    raise TypeError(
        f"from_dlpack: elements of DLPack's type {tensor.code} with {tensor.bits} bits "
        f"have no counterpart here; convert them to one of "
        f"{[d.name for d in dtypes.ALL]} first"
    )


def from_cuda_array(source: Any) -> TensorData:
    """A tensor on the memory of an object with a `__cuda_array_interface__`.

    It is the current GPU's, unless the object speaks DLPack as well, as torch does.
    """
    facts = source.__cuda_array_interface__
    # The interface does not say whose memory it is; DLPack does, where it is there too.
    index = device.current_index()
    if hasattr(source, "__dlpack_device__"):
        index = source.__dlpack_device__()[1]
    with device.on(device.gpu(index)):
        return _from_facts(source, facts)


def _from_facts(source: Any, facts: dict[str, Any]) -> TensorData:
    """A tensor on the memory of the current GPU that `facts` describe."""
    dtype = from_numpy_dtype(np.dtype(facts["typestr"]))
    strides = facts.get("strides")
    if strides is not None:
        if any(step % dtype.itemsize for step in strides):
            raise ValueError(
                f"as_tensor: strides are {strides} bytes; expected multiples of "
                f"{dtype.itemsize}"
            )
        strides = tuple(step // dtype.itemsize for step in strides)
    stream = facts.get("stream")
    if stream is not None:
        theirs = device.driver().CUstream(0 if stream == 1 else stream)
        if int(theirs) != device.current.key:
            device.order(theirs, device.current.handle)
    return _wrap(facts["data"][0], dtype, tuple(facts["shape"]), strides, source)


def _wrap(
    address: int, dtype: DType, shape: Shape, strides: Strides | None, keep: Any
) -> TensorData:
    """A tensor on memory that somebody else owns, and `keep` keeps."""
    steps = strides or TensorData(Storage(None, dtype, ""), shape).strides
    if any(step < 0 for step in steps):
        raise ValueError(
            f"strides are {steps}; a tensor cannot share memory that runs backwards"
        )
    last = sum((n - 1) * step for n, step in zip(shape, steps))
    size = 0 if 0 in shape else last + 1
    array = ARRAYS[dtype](address, size, None, keep)
    return TensorData(Storage(array, dtype, device.current.name), shape, strides)
