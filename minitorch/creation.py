"""New tensors: from Python, from NumPy, full of a value, or random.

With this file one can make the tensors that everything else starts from: `tensor`,
`from_numpy`, `zeros`, `arange`, `randn` and so on, with PyTorch's names and arguments.
Random numbers are drawn by a generator (`minitorch/random.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minitorch.backend.dlpack as dlpack
import minitorch.dtypes as dtypes
from minitorch.arguments import dims_of, int_sequence
from minitorch.autodiff import no_grad
from minitorch.backend import Backend, get_backend, half_backends
from minitorch.dtypes import DType
from minitorch.functions.operands import checked_tensor
from minitorch.random import Generator, default_generator
from minitorch.tensor import Number, Size, Tensor
from minitorch.tensor_data import Shape, TensorData

DEFAULT_DEVICE = "cpu"


def _on(device: str | None, dtype: DType = dtypes.float32) -> Backend:
    """The functions that make tensors of this type on the device."""
    device = device or DEFAULT_DEVICE
    return half_backends[str(device)] if dtype.half else get_backend(device)


def _finish(raw: Any, requires_grad: bool) -> Tensor:
    out = Tensor.wrap(raw)
    return out.requires_grad_() if requires_grad else out


def _shape(name: str, sizes: tuple[Any, ...], size: Any = None) -> Shape:
    """That of f(2, 3), f((2, 3)) or f(size=(2, 3))."""
    shape = int_sequence(name, sizes if size is None else (*sizes, size))
    if any(n < 0 for n in shape):
        raise ValueError(f"{name}: shape {shape} has a negative size")
    return shape


def _dtype(dtype: DType | None, default: DType = dtypes.float32) -> DType:
    return default if dtype is None else dtypes.check(dtype)


# -------------------------------------------------------- from Python and NumPy


def tensor(
    data: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new tensor with a copy of `data`: a number, nested lists, an array, a tensor.

    Python floats make float32, ints int64, bools bool; arrays keep their dtype.

    Raises:
        ValueError: rows of different lengths, or a number too large for the dtype.
        TypeError: elements that are not numbers.
    """
    if isinstance(data, Tensor):
        out = data.detach().clone().to(device or data.raw.device)
        out = out if dtype is None else out.to(dtype)
        return out.requires_grad_() if requires_grad else out
    array = _as_array(data)
    wanted = _default_dtype(data, array) if dtype is None else dtypes.check(dtype)
    if array.size and not isinstance(data, (np.ndarray, np.generic)):
        for number in np.array([array.min(), array.max()]).tolist():
            dtypes.check_number(number, wanted)
    if wanted.half:  # ml_dtypes converts no Python objects
        array = array.astype(np.float64)
    with np.errstate(over="ignore"):  # too large for the dtype: infinity
        flat = np.array(array.reshape(-1), dtype=wanted.numpy, copy=True)
    raw = _on(device).from_numpy(flat)
    return _finish(TensorData(raw.storage, array.shape), requires_grad)


def FloatTensor(*data: Any) -> Tensor:
    """PyTorch's old name of `tensor(data, dtype=float32)`, and of `empty(sizes)`."""
    return _old("FloatTensor", dtypes.float32, data)


def LongTensor(*data: Any) -> Tensor:
    """PyTorch's old name of `tensor(data, dtype=int64)`, and of `empty(sizes)`."""
    return _old("LongTensor", dtypes.int64, data)


def _old(name: str, dtype: DType, data: tuple[Any, ...]) -> Tensor:
    if len(data) == 1 and not isinstance(data[0], (int, Size)):
        return tensor(data[0], dtype)
    return empty(_shape(name, data or (0,)), dtype=dtype)


def _as_array(data: Any) -> np.ndarray:
    """`data` as an array of one of our dtypes."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.asarray(data)
    try:
        array = np.asarray(_plain(data))
    except ValueError as error:
        raise ValueError(
            f"tensor: the nested lists do not make a box: {error}; all rows of a "
            f"dimension must have one length"
        ) from None
    if array.dtype.kind == "O" and all(isinstance(x, (int, float)) for x in array.flat):
        return array  # integers of more than 64 bits
    if array.dtype.kind not in "fiub" and array.dtype != dtypes.bfloat16.numpy:
        raise TypeError(
            f"tensor: elements of type {_element_type(data)} are not numbers; expected "
            f"bools, ints or floats"
        )
    return array


def _default_dtype(data: Any, array: np.ndarray) -> DType:
    """The dtype of `tensor(data)`; Python floats make float32, and ints int64."""
    if not isinstance(data, (np.ndarray, np.generic)):
        if array.dtype.kind == "O":
            whole = all(isinstance(x, int) for x in array.flat)
            return dtypes.int64 if whole else dtypes.float32
        if array.dtype.kind == "f" and not (array.size and _has_float64(data)):
            return dtypes.float32
        if array.dtype.kind in "iu":
            return dtypes.int64
    return dtypes.from_numpy_dtype(array.dtype)


def _plain(data: Any) -> Any:
    """Tensors among nested lists become what NumPy understands: one of one element,
    whatever its shape, a number, as in PyTorch."""
    if isinstance(data, Tensor):
        array = data.detach().numpy()
        return array.reshape(()) if array.size == 1 else array
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return data


def _has_float64(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return getattr(data, "dtype", None) in (np.float64, dtypes.float64)


def _element_type(data: Any) -> str:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return type(data).__name__


def from_numpy(array: np.ndarray, device: str | None = None) -> Tensor:
    """A tensor that shares the array's memory (on the CPU).

    Raises:
        TypeError: not an array, or of a dtype that has no counterpart here.
        ValueError: a stride is negative, so the memory cannot be shared.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: expected an array, got {type(array).__name__}")
    dtypes.from_numpy_dtype(array.dtype)
    if any(step < 0 for step in array.strides):
        raise ValueError(
            f"from_numpy: the array has strides {array.strides}; a tensor cannot share "
            f"memory that runs backwards, so pass array.copy()"
        )
    own = array.view(np.ndarray)  # whose shape nobody else sets; and no np.matrix
    return Tensor(_on(device).from_numpy(own))


def as_tensor(
    data: Any, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """`data` as a tensor, without a copy where that can be."""
    if isinstance(data, Tensor):
        out = data if device is None else data.to(device)
    elif isinstance(data, np.ndarray):
        out = from_numpy(data, device)
    elif hasattr(data, "__cuda_array_interface__"):
        out = Tensor(get_backend("cuda").from_cuda_array(data))
        out = out if device is None else out.to(device)
    else:
        return tensor(data, dtype, device)
    return out if dtype is None else out.to(dtype)


DLPACK_CUDA = 2  # how DLPack numbers GPUs among the types of devices


def from_dlpack(source: Any) -> Tensor:
    """A tensor on the memory of another library's tensor, through DLPack.

    It is on "cuda" if that is on a GPU, else on "cpu".
    """
    if source.__dlpack_device__()[0] == DLPACK_CUDA:
        return Tensor(get_backend("cuda").from_dlpack(source))
    return from_numpy(dlpack.array_of(source))


# ------------------------------------------------------------------------ constants


def full(
    size: Any,
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of shape `size` with `fill_value` everywhere."""
    kind = _dtype(dtype, dtypes.infer(fill_value))
    fill_value = dtypes.check_number(fill_value, kind)
    return _finish(
        _on(device).full(_shape("full", (size,)), fill_value, kind), requires_grad
    )


def zeros(
    *sizes: Any, size: Any = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of zeros: `zeros(2, 3)` or `zeros((2, 3))`."""
    shape, kind = _shape("zeros", sizes, size), _dtype(dtype)
    return full(shape, 0, dtype=kind, device=device, requires_grad=requires_grad)


def ones(
    *sizes: Any, size: Any = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of ones: `ones(2, 3)` or `ones((2, 3))`."""
    shape, kind = _shape("ones", sizes, size), _dtype(dtype)
    return full(shape, 1, dtype=kind, device=device, requires_grad=requires_grad)


def empty(
    *sizes: Any, size: Any = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor whose elements have no particular value."""
    return _finish(
        _on(device).empty(_shape("empty", sizes, size), _dtype(dtype)), requires_grad
    )


def zeros_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros in the shape, dtype and on the device of `input`."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones in the shape, dtype and on the device of `input`."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def full_like(
    input: Tensor,
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`fill_value` in the shape of `input`, by default in its dtype on its device."""
    storage = checked_tensor("full_like", input).raw.storage
    kind = storage.dtype if dtype is None else dtypes.check(dtype)
    fill_value = dtypes.check_number(fill_value, kind)
    backend = _on(device or storage.device)
    return _finish(backend.full(input.raw.shape, fill_value, kind), requires_grad)


def empty_like(input: Tensor, *, dtype: DType | None = None) -> Tensor:
    """A tensor like `input` whose elements have no particular value."""
    storage = checked_tensor("empty_like", input).raw.storage
    kind = storage.dtype if dtype is None else dtypes.check(dtype)
    return Tensor.wrap(_on(storage.device).empty(input.raw.shape, kind))


def arange(
    start: Number, end: Number | None = None, step: Number = 1, *,
    dtype: DType | None = None, device: str | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, ... below `end`; `arange(5)` is 0, 1, 2, 3, 4."""
    if end is None:
        start, end = 0, start
    if Tensor in (type(start), type(end), type(step)):
        given = (start, end, step)
        start, end, step = [getattr(x, "item", lambda x=x: x)() for x in given]
    whole = type(start) is type(end) is type(step) is int
    whole = whole or dtypes.float32 not in map(dtypes.infer, (start, end, step))
    if step == 0 or not math.isfinite(end - start):
        raise ValueError(f"arange: no steps of {step} lead from {start} to {end}")
    if (end - start) * step < 0:
        raise ValueError(f"arange: a step of {step} never gets from {start} to {end}")
    kind = _dtype(dtype, dtypes.int64 if whole else dtypes.float32)
    if whole and max(abs(start), abs(end), abs(step)) >= 2**31:
        for number in (start, end, step):
            dtypes.check_number(number, dtypes.int64)
    count = max(0, math.ceil((end - start) / step))
    last = start + step * (count - 1)
    return _finish(_on(device).arange(start, step, count, kind, last), requires_grad)


def linspace(
    start: Number, end: Number, steps: int, *, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` numbers from `start` to `end`, both included, at equal distances."""
    if steps < 0:
        raise ValueError(f"linspace: steps is {steps}; it must be 0 or more")
    step, last = (end - start) / max(steps - 1, 1), end if steps > 1 else start
    made = _on(device).arange(float(start), step, steps, _dtype(dtype), last)
    return _finish(made, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The n x m matrix with ones on the diagonal."""
    shape, kind = _shape("eye", (n, n if m is None else m)), _dtype(dtype)
    raw = (backend := _on(device, kind)).full(shape, 0, kind)
    diagonal = TensorData(raw.storage, (min(shape),), (shape[1] + 1,))
    backend.fill(diagonal, 1)
    return _finish(raw, requires_grad)


# --------------------------------------------------------------------------- random


def rand(
    *sizes: Any, size: Any = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Uniform random numbers in [0, 1)."""
    shape, kind = _shape("rand", sizes, size), _floating_dtype("rand", dtype)
    chosen = generator or default_generator
    return _finish(chosen.uniform(_on(device, kind), shape, kind), requires_grad)


def randn(
    *sizes: Any, size: Any = None, dtype: DType | None = None,
    device: str | None = None, requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal random numbers with mean 0 and variance 1."""
    shape, kind = _shape("randn", sizes, size), _floating_dtype("randn", dtype)
    chosen = generator or default_generator
    return _finish(chosen.normal(_on(device, kind), shape, kind), requires_grad)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers: `normal(0, 0.1, (2, 3))`, or with a tensor of means, of
    standard deviations or of both, which get no gradient."""
    options: dict[str, Any] = {"dtype": dtype, "device": device, "generator": generator}
    if size is None:
        given = mean if isinstance(mean, Tensor) else std
        if not isinstance(given, Tensor):
            raise TypeError("normal: the mean and std are numbers; say size=, too")
        size = (mean + std).raw.shape
        options["dtype"], options["device"] = dtype or given.dtype, given.raw.device
    if (std < 0).any() if isinstance(std, Tensor) else std < 0:
        raise ValueError(f"normal: std is {std}; it must be 0 or more")
    with no_grad():
        out = randn(size, **options) * std + mean
    return out.requires_grad_() if requires_grad else out


def randint(
    low: int = 0,
    high: Any = None,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Random integers in [low, high): `randint(10, (3,))` or `randint(0, 10, (3,))`."""
    if size is None:
        high, size = None, high
    if high is None:
        low, high = 0, low
    low, high = int_sequence("randint", (low, high))
    if not 0 < high - low <= 2**31:
        raise ValueError(
            f"randint: low is {low} and high {high}; high must be above low, at most "
            f"by 2**31"
        )
    shape = _shape("randint", (size,))
    kind = _dtype(dtype, dtypes.int64)
    chosen = generator or default_generator
    return Tensor(chosen.randint(_on(device, kind), low, high, shape, kind))


def randperm(
    n: int, *, dtype: DType | None = None, device: str | None = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """A random order of 0, 1, ... n - 1 (int64)."""
    (n,), chosen = _shape("randperm", (n,)), generator or default_generator
    out = Tensor(chosen.permutation(_on(device), n))
    return out if dtype is None else out.to(dtype)


def rand_like(input: Tensor, **options: Any) -> Tensor:
    """`rand` in the shape of `input`, by default in its dtype and on its device."""
    raw = checked_tensor("rand_like", input).raw
    return rand(raw.shape, **{"dtype": raw.dtype, "device": raw.device, **options})


def randn_like(input: Tensor, **options: Any) -> Tensor:
    """`randn` in the shape of `input`, by default in its dtype and on its device."""
    raw = checked_tensor("randn_like", input).raw
    return randn(raw.shape, **{"dtype": raw.dtype, "device": raw.device, **options})


def randint_like(
    input: Tensor, low: int, high: int, *, generator: Generator | None = None
) -> Tensor:
    """Random integers in the shape and on the device of `input`, as int64."""
    raw = checked_tensor("randint_like", input).raw
    return randint(low, high, raw.shape, device=raw.device, generator=generator)


def _floating_dtype(name: str, dtype: DType | None) -> DType:
    kind = _dtype(dtype)
    if not kind.is_floating_point:
        raise TypeError(
            f"{name}: dtype is {kind.name}; it must be float32, float64, float16 or "
            f"bfloat16"
        )
    return kind


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid: each 1-D tensor expanded over the dims of the others."""
    if not tensors or any(dims_of("meshgrid", t) > 1 for t in tensors):
        raise ValueError(
            f"meshgrid: expected one vector or more, got shapes "
            f"{[t.raw.shape for t in tensors]}"
        )
    if indexing not in ("ij", "xy"):
        raise ValueError(f'meshgrid: indexing is {indexing!r}; use "ij" or "xy"')
    shape = tuple(t.numel() for t in tensors)
    ones = [[-1] + [1] * i for i in reversed(range(len(tensors)))]
    grids = [t.reshape(o).expand(shape) for t, o in zip(tensors, ones)]
    if indexing == "xy" and len(tensors) > 1:
        grids = [g.transpose(0, 1) for g in grids]
    return tuple(grids)
