"""Call what a student wrote, with plain arrays in and plain arrays out.

With this file the `calls.py` of an assignment lays operands out in memory (`operand`,
`tensor`), calls a function with them (`called`, `timed`), reads results so that shared
or changed operands show (`results`), and reports an error that was asked for
(`raised`). It runs in the student's process and knows no right answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from assignments import fences

# What is timed, and what reads its result.
Timed = tuple[Callable[[], Any], Callable[[Any], dict[str, Any]]]


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor (our own: a student may be writing theirs)."""
    return tuple(
        math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape))
    )


def lay_out(array: np.ndarray, layout: str) -> tuple[np.ndarray, tuple[int, ...], int]:
    """A flat array, strides and an offset under which it shows `array`.

    Layouts: "contiguous"; "offset", in the middle of a larger storage; "permuted",
    column by column; "stepped", with gaps; "negative", backwards. What lies between the
    elements is garbage.
    """
    shape = array.shape
    if layout == "contiguous":
        return np.array(array, order="C").reshape(-1), strides_of(shape), 0
    if layout == "offset":
        flat = garbage(array.size + 5, array.dtype)
        flat[3 : 3 + array.size] = array.reshape(-1)
        return flat, strides_of(shape), 3
    if layout == "permuted":
        flat = np.array(array.T, order="C").reshape(-1)
        return flat, strides_of(shape[::-1])[::-1], 0
    if layout == "stepped":
        wide = tuple(2 * n + 1 for n in shape)
        base = garbage(math.prod(wide), array.dtype).reshape(wide)
        base[tuple(slice(1, None, 2) for _ in shape)] = array
        steps = strides_of(wide)
        return base.reshape(-1), tuple(2 * s for s in steps), sum(steps)
    if layout == "negative":
        flat = np.array(array.reshape(-1)[::-1])
        return flat, tuple(-s for s in strides_of(shape)), max(array.size - 1, 0)
    raise ValueError(f"lay_out: no layout is called {layout!r}")


def garbage(size: int, dtype: np.dtype) -> np.ndarray:
    """NaN, True, or a large number, `size` times."""
    value = {"f": np.nan, "b": True}.get(np.dtype(dtype).kind)
    return np.full(size, np.iinfo(dtype).max if value is None else value, dtype)


def operand(device: str, array: np.ndarray, layout: str = "contiguous") -> Any:
    """A TensorData on `device` with the elements of `array`, laid out as asked."""
    from minitorch.backend import get_backend
    from minitorch.tensor_data import TensorData

    flat, strides, offset = lay_out(np.asarray(array), layout)
    storage = get_backend(device).from_numpy(fences.fenced(flat)).storage
    return TensorData(storage, np.shape(array), strides, offset)


def operands_of(device: str, **arrays: np.ndarray) -> dict[str, Any]:
    """The operands with the elements of these arrays, by their names."""
    return {name: operand(device, array) for name, array in arrays.items()}


def tensor(
    device: str,
    array: np.ndarray,
    layout: str = "contiguous",
    requires_grad: bool = False,
) -> Any:
    """A Tensor on `device` with the elements of `array`, laid out as asked."""
    from minitorch import Tensor

    made = Tensor(operand(device, array, layout))
    made.requires_grad = requires_grad
    return made


def read(a: Any) -> Any:
    """A NumPy copy of the elements of a tensor or of TensorData."""
    from minitorch.backend import get_backend

    raw = getattr(a, "raw", a)
    if not hasattr(raw, "storage"):
        return a
    return np.array(get_backend(raw.device).to_numpy(raw))


def gradients(out: Any, grad: np.ndarray, **leaves: Any) -> dict[str, Any]:
    """The output, the gradients of the leaves that want one, and the leaves."""
    value = read(out)
    out.backward(tensor(out.device, grad))
    known = {n: x for n, x in leaves.items() if x is not None}
    grads = {f"grad_{n}": read(x.grad) for n, x in known.items() if x.requires_grad}
    return {"out": value, **grads, **{n: read(x) for n, x in known.items()}}


def operator_of(name: str) -> Callable[..., Any]:
    """The function of this name in `minitorch.operators`."""
    from minitorch import operators

    return vars(operators)[name]


def rung_of(ladder: Iterable[Callable[..., Any]], name: str) -> Callable[..., Any]:
    """The one of the launchers that has this name."""
    (found,) = [rung for rung in ladder if rung.__name__ == name]
    return found


def called(
    run: Callable[..., Any], operands: Mapping[str, Any], *how: Any
) -> dict[str, Any]:
    """What run(*operands, *how) returns as "out", and the operands after the call."""
    return results({"out": run(*operands.values(), *how)}, operands)


def watched_call(
    run: Callable[..., Any], operands: Mapping[str, Any]
) -> dict[str, Any]:
    """As `called`, of kernels of a GPU: those with a race fail."""
    with watched():
        out = run(*operands.values())
    return results({"out": out}, operands)


def timed(run: Callable[..., Any], operands: Mapping[str, Any]) -> Timed:
    """run(*operands), to be timed; its result is read as that of `called`."""
    read_all = lambda out: results({"out": out}, operands)
    return lambda: run(*operands.values()), read_all


def results(outputs: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of outputs, and of the operands after the call.

    The operands' memory is overwritten before outputs are read: an output that shares
    it is no new tensor, and shows garbage, if it is not found before.

    Raises:
        ValueError: an output shares memory with an operand.
    """
    fences.name({**operands, **outputs})
    for name, out in outputs.items():
        for other, operand in operands.items():
            if _share(out, operand):
                raise ValueError(
                    f"{name} shares its memory with {other}; expected new memory, "
                    f"which does not change when {other} does"
                )
    after = {name: read(a) for name, a in operands.items()}
    for a in operands.values():
        _overwrite(getattr(a, "raw", a))
    return {**{name: read(a) for name, a in outputs.items()}, **after}


def _share(out: Any, operand: Any) -> bool:
    """Whether an output, if it has elements, lies in the memory of an operand."""
    a, b = (getattr(x, "raw", x) for x in (out, operand))
    if not (hasattr(a, "storage") and hasattr(b, "storage") and a.size):
        return False
    x, y = a.storage.array, b.storage.array
    host = isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
    return x is y or (host and np.may_share_memory(x, y))


def _overwrite(a: Any) -> None:
    from minitorch.backend import get_backend
    from minitorch.tensor_data import TensorData

    backend = get_backend(a.device)
    flat = garbage(len(a.storage.array), a.dtype.numpy)
    whole = TensorData(a.storage, flat.shape, (1,), 0)
    backend.copy_into(whole, backend.from_numpy(flat))


def most_writers(kernel: Any, run: Callable[[Any, np.ndarray], Any], shape: Any) -> int:
    """How many iterations of a `prange` write one element of a kernel's output.

    The kernel runs as Python, where iterations come one after the other. Before each of
    them the output is overwritten, so that what it writes shows. More than one may be a
    race, which compiled code shows only when it happens. (What Python cannot run is not
    looked at: integers of NumPy and of Numba differ in places.)

    Args:
        kernel: of fast_ops.
        run: calls it, or what is given in its place, with a float32 output.
    """
    out = np.empty(shape, np.float32)
    bits, most = out.view(np.uint32), 1
    plain = getattr(kernel, "py_func", kernel)  # one that is not written says so

    def apart(*ends: int) -> Any:
        nonlocal most
        times = np.zeros(shape, int)
        for i in range(*ends):
            bits[...] = fences.CANARIES[4][0] + 1
            yield i
            times += bits != fences.CANARIES[4][0] + 1
        most = max(most, times.max(initial=1))

    with _as_python(plain, apart):
        run(plain, out)
    return int(most)


def is_shared(kernel: Any, *arguments: Any) -> bool:
    """Whether a kernel has something for several cores: iterations of a `prange`.

    The kernel runs as Python. Of what Python cannot run nobody knows, so it counts.
    """
    count = 0
    plain = getattr(kernel, "py_func", kernel)

    def counted(*ends: int) -> Any:
        nonlocal count
        for i in range(*ends):
            count += 1
            yield i

    with _as_python(plain, counted):
        plain(*arguments)
        return count > 1
    return True


@contextmanager
def _as_python(plain: Any, prange: Any) -> Iterator[None]:
    """Where a kernel runs as Python, with this for `prange` by any of its names."""
    import numba

    known, real = getattr(plain, "__globals__", {}), numba.prange
    names = [name for name, value in known.items() if value is real]
    try:
        known.update(dict.fromkeys(names, prange))
        numba.prange = prange
        with np.errstate(all="ignore"):
            yield
    except (TypeError, ValueError, IndexError, OverflowError):
        pass
    finally:
        known.update(dict.fromkeys(names, real))
        numba.prange = real


@contextmanager
def watched() -> Iterator[Any]:
    """Kernels with a race fail, where they are simulated."""
    from cuda_ops.runtime.launch import SIMULATED
    from cuda_ops.simulator.watch import watching

    if not SIMULATED:
        yield None
        return
    with watching() as watch:
        yield watch


def raised(call: Callable[[], Any]) -> dict[str, Any]:
    """{"raises": the error's name}, where `call` is expected to refuse its inputs."""
    try:
        call()
    except NotImplementedError:
        raise
    except Exception as error:  # whatever it is, its name is the result
        return {"raises": type(error).__name__}
    return {"raises": None}
