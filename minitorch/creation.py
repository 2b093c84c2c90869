"""New tensors: from Python, from NumPy, full of a value, or random.

With this file one can make the tensors that everything else starts from: `tensor`,
`from_numpy`, `zeros`, `arange`, `randn` and so on, with PyTorch's names and arguments.
Random numbers come from a counter-based generator: the same seed gives the same numbers
on every device, and in any number of threads. Who compares a program with PyTorch's
chooses the numbers that PyTorch draws: `manual_seed(0, sequence="pytorch")`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import minitorch.backend.dlpack as dlpack
import minitorch.dtypes as dtypes
from minitorch.arguments import dims_of, int_sequence
from minitorch.autodiff import no_grad
from minitorch.backend import Backend, get_backend, half_backends
from minitorch.devices import named
from minitorch.dtypes import DType
from minitorch.executor import advance
from minitorch.functions.operands import checked_tensor
from minitorch.mersenne import Mersenne
from minitorch.tensor import Number, Size, Tensor
from minitorch.tensor_data import Shape, TensorData, numel

DEFAULT_DEVICE = "cpu"


def _on(device: str | None, dtype: DType = dtypes.float32) -> Backend:
    """The functions that make tensors of this type on the device."""
    device = device or DEFAULT_DEVICE
    return half_backends[str(device)] if dtype.half else get_backend(device)


def _finish(raw: Any, requires_grad: bool) -> Tensor:
    out = Tensor.wrap(raw)
    return out.requires_grad_() if requires_grad else out


def _shape(name: str, size: tuple[Any, ...]) -> Shape:
    shape = int_sequence(name, size)
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
    *size: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros: `zeros(2, 3)` or `zeros((2, 3))`."""
    shape, kind = _shape("zeros", size), _dtype(dtype)
    return full(shape, 0, dtype=kind, device=device, requires_grad=requires_grad)


def ones(
    *size: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones: `ones(2, 3)` or `ones((2, 3))`."""
    shape, kind = _shape("ones", size), _dtype(dtype)
    return full(shape, 1, dtype=kind, device=device, requires_grad=requires_grad)


def empty(
    *size: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor whose elements have no particular value."""
    return _finish(
        _on(device).empty(_shape("empty", size), _dtype(dtype)), requires_grad
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


class Generator:
    """A place in the random sequence of a seed.

    The sequence is a function of (seed, block number); drawing n numbers moves the
    block number on by ceil(n / 4), and nothing else is kept.

    Args:
        seed: of the sequence; None: one that nobody knows. PyTorch's only argument, the
            name of a device, may stand here as well.
        device: what programs for PyTorch say it draws for; the sequence is the same on
            all devices, and serves them all.
        sequence: see `manual_seed`; None: that of the default generator.
    """

    def __init__(
        self, seed: int | str | None = None, device: str | None = None,
        sequence: str | None = None,
    ) -> None:  # fmt: skip
        if isinstance(seed, str):
            seed, device = None, seed
        self.device = named(device or DEFAULT_DEVICE)
        seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self.twin: Mersenne | None = None  # draws as PyTorch does
        if sequence is None and default_generator.twin is not None:
            sequence = "pytorch"
        self.manual_seed(seed, sequence)

    def manual_seed(self, seed: int, sequence: str | None = None) -> Generator:
        """Start the sequence of `seed` (an int; its low 64 bits count).

        Args:
            sequence: "philox", ours, which any thread can begin anywhere; or "pytorch":
                the numbers that PyTorch draws on a CPU, for whoever compares a program
                with PyTorch's. None: as before.

        PyTorch's are drawn by `rand`, `randn`, `randint`, `randperm`, `normal`,
        `uniform_`, `normal_` (with them the first weights of layers), `bernoulli`,
        `bernoulli_`, `dropout` (that of attention, too), `multinomial`, `random_split`
        and a `DataLoader` without seed and generator; float32 and float64 alike, but
        for the last bits of normal numbers. They are made one by one, by NumPy.

        All else is not PyTorch's: half types, but for `rand`; what is drawn into, or in
        the shape of, a transposed tensor or a slice of columns; dropout of a sum or a
        `relu` of transposed tensors, which lie in another order here (that of the
        tensors themselves is PyTorch's); and numbers of a loader's workers. On Intel's
        processors, and in some versions on others, PyTorch asks Intel's library for
        dropout and `bernoulli_`: then those differ, and what is drawn after them.
        """
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
            raise TypeError(f"manual_seed: got {seed!r}; expected an int")
        if sequence not in (None, "philox", "pytorch"):
            raise ValueError(
                f'manual_seed: sequence is {sequence!r}; expected "philox" or "pytorch"'
            )
        self.seed, self.offset = int(seed) & (2**64 - 1), 0
        pytorch = self.twin is not None if sequence is None else sequence == "pytorch"
        self.twin = Mersenne(self.seed) if pytorch else None
        return self

    def initial_seed(self) -> int:
        """The seed of the sequence."""
        return self.seed

    def take(self, count: int) -> tuple[int, int]:
        """(seed, block number) for `count` numbers, and move on behind them."""
        return advance("Generator.take", self._take, count)

    def _take(self, count: int) -> tuple[int, int]:
        start = self.offset
        self.offset += -(-count // 4)
        return self.seed, start

    def uniform(self, on: Backend, shape: Shape, dtype: DType) -> TensorData:
        """Uniform numbers in [0, 1) on a device."""
        if self.twin is None:
            return on.uniform(shape, dtype, *self.take(numel(shape)))
        return self.drawn(on, shape, dtype, self.twin.uniform, _whole(dtype))

    def normal(self, on: Backend, shape: Shape, dtype: DType) -> TensorData:
        """Normal numbers with mean 0 and variance 1 on a device."""
        if self.twin is None:
            return on.normal(shape, dtype, *self.take(numel(shape)))
        return self.drawn(on, shape, dtype, self.twin.normal, _whole(dtype))

    def randint(
        self, on: Backend, low: int, high: int, shape: Shape, dtype: DType
    ) -> TensorData:
        """Integers in [low, high) on a device."""
        if self.twin is None:
            return on.randint(low, high, shape, dtype, *self.take(numel(shape)))
        return self.drawn(on, shape, dtype, self.twin.integers, low, high)

    def drawn(
        self, on: Backend, shape: Shape, dtype: DType, draw: Callable, *args: Any
    ) -> TensorData:
        """`draw(count, *args)`, a method of `twin`, on a device."""
        values = advance("Generator.drawn", self._drawn, draw, numel(shape), *args)
        return on.from_numpy(values.astype(dtype.numpy, copy=False).reshape(shape))

    def _drawn(self, draw: Callable, *args: Any) -> Any:
        return draw(*args)

    def whole(self) -> int:
        """A number below 2**63, as PyTorch draws seeds. Only with its sequence."""
        assert self.twin is not None
        return int(
            advance("Generator.drawn", self._drawn, self.twin.integers, 1, 0, 2**63)[0]
        )

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs to come back to this place."""
        state: dict[str, Any] = {"seed": self.seed, "offset": self.offset}
        return state if self.twin is None else state | {"twin": self.twin.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to a place that `get_state` gave."""
        self.seed, self.offset = int(state["seed"]), int(state["offset"])
        self.twin = Mersenne(0) if "twin" in state else None
        if self.twin is not None:
            self.twin.set_state(state["twin"])


def _whole(dtype: DType) -> Any:
    """NumPy's type that numbers are drawn in: halves are rounded from float32."""
    return np.float32 if dtype.half else dtype.numpy


default_generator = Generator(0, sequence=os.environ.get("MINITORCH_RANDOM", "philox"))


def manual_seed(seed: int, sequence: str | None = None) -> Generator:
    """Start the default generator anew, for all devices; see `Generator.manual_seed`.

    Until a program says which sequence, the environment variable MINITORCH_RANDOM does:
    "pytorch" or "philox".
    """
    return default_generator.manual_seed(seed, sequence)


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> dict[str, Any]:
    """Where the default generator is, for all devices. (PyTorch's is a tensor.)"""
    return default_generator.get_state()


def set_rng_state(new_state: dict[str, Any]) -> None:
    """Go to a place that `get_rng_state` gave."""
    default_generator.set_state(new_state)


def rand(
    *size: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform random numbers in [0, 1)."""
    shape, kind = _shape("rand", size), _floating_dtype("rand", dtype)
    chosen = generator or default_generator
    return _finish(chosen.uniform(_on(device, kind), shape, kind), requires_grad)


def randn(
    *size: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal random numbers with mean 0 and variance 1."""
    shape, kind = _shape("randn", size), _floating_dtype("randn", dtype)
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
    n: int, *, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """A random order of 0, 1, ... n - 1 (int64)."""
    shape, chosen = _shape("randperm", (n,)), generator or default_generator
    if chosen.twin is None:
        return randint(0, 2**31, shape, device=device, generator=generator).argsort()
    on, draw = _on(device), chosen.twin.permutation
    return Tensor(chosen.drawn(on, shape, dtypes.int64, draw))


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
