"""What tests of more than one file share: devices, memory layouts, comparisons.

With this file a test can run on every installed device (`DEVICES`, `loaded`), put a
NumPy array into a backend's memory in any layout (`make`, `LAYOUTS`), draw shapes
around the block sizes of kernels (`shapes`), and compare a `TensorData` with what NumPy
or torch says (`array_of`, `assert_equal`, `assert_close`).

    a = numbers((4, 5), dtypes.float32, layout="stepped")
    x = make(a, "cpu", "stepped")          # the same elements, with gaps between them
    assert_close(backend.map(operators.exp, x), np.exp(a))
"""

from __future__ import annotations

import gc
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import minitorch
from minitorch import dtypes
from minitorch.backend import available_devices, get_backend
from minitorch.cuda import is_available
from minitorch.dtypes import DType
from minitorch.function import Context
from minitorch.models import GPT, GPTConfig
from minitorch.tensor_data import Shape, TensorData, contiguous_strides

# "cuda" is left out where there is neither a GPU nor the simulator; tests/cuda says so
# by being skipped.
DEVICES = [d for d in available_devices() if d != "cuda" or is_available()]
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") == "1"
FLOATS = (dtypes.float32, dtypes.float64)
NUMBERS = (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.int32)
EXAMPLES = 8 if SIMULATED else 25  # that hypothesis makes for a test
quick = settings(deadline=None, max_examples=EXAMPLES)

# How the elements of a tensor lie in memory:
LAYOUTS = (
    "contiguous",
    "offset",  # row by row, but in the middle of a larger storage
    "permuted",  # column by column
    "stepped",  # with gaps in every dimension, as from x[1::2, 1::2]
    "negative",  # backwards in every dimension
    "expanded",  # dimension 0 has a stride of 0; `numbers` makes fitting arrays
)


def loaded(device: str) -> Any:
    """The backend of `device`; skips the test if a module that it needs is missing.

    Whatever else goes wrong is an error, and so is a missing "simple" or "cpu": a
    backend that is broken must not look like one that is not there.
    """
    try:
        return get_backend(device)
    except RuntimeError as error:
        missing = isinstance(error.__cause__, ModuleNotFoundError)
        if device in ("simple", "cpu") or not missing:
            raise
        pytest.skip(str(error))


# ------------------------------------------------------------------------- inputs


def numbers(
    shape: Shape, dtype: DType = dtypes.float32, seed: int = 0, layout: str = ""
) -> np.ndarray:
    """Random elements: normal floats, integers from -9 to 9, or bools.

    For the layout "expanded" all slices of dimension 0 are equal.
    """
    rng = np.random.default_rng((seed, *shape))
    if dtype is dtypes.bool_:
        array = rng.integers(0, 2, shape).astype(bool)
    elif dtype.is_floating_point:
        array = rng.standard_normal(shape).astype(dtype.numpy)
    else:
        array = rng.integers(-9, 10, shape).astype(dtype.numpy)
    if layout == "expanded" and shape and array.size:
        array = np.ascontiguousarray(np.broadcast_to(array[:1], shape))
    return array


def make(array: Any, device: str, layout: str = "contiguous") -> TensorData:
    """A tensor on `device` with the elements of `array`, laid out as `layout` says.

    Memory between the elements is filled with NaN (or the largest number), so that a
    kernel that reads it shows.
    """
    array = np.asarray(array)
    flat, strides, offset = _lay_out(array, layout)
    storage = get_backend(device).from_numpy(flat).storage
    return TensorData(storage, array.shape, strides, offset)


def _lay_out(
    array: np.ndarray, layout: str
) -> tuple[np.ndarray, tuple[int, ...] | None, int]:
    """A flat array, with the strides and the offset under which it shows `array`."""
    shape = array.shape
    if layout == "contiguous":
        return np.array(array, order="C").reshape(-1), None, 0
    if layout == "offset":
        flat = _garbage(array.size + 5, array.dtype)
        flat[3 : 3 + array.size] = array.reshape(-1)
        return flat, contiguous_strides(shape), 3
    if layout == "permuted":
        flat = np.array(array.T, order="C").reshape(-1)
        return flat, contiguous_strides(shape[::-1])[::-1], 0
    if layout == "stepped":
        wide = tuple(2 * size + 1 for size in shape)
        base = _garbage(math.prod(wide), array.dtype).reshape(wide)
        base[tuple(slice(1, None, 2) for _ in shape)] = array
        steps = contiguous_strides(wide)
        return base.reshape(-1), tuple(2 * step for step in steps), sum(steps)
    if layout == "negative":
        flat = np.array(array.reshape(-1)[::-1])
        return (
            flat,
            tuple(-s for s in contiguous_strides(shape)),
            max(array.size - 1, 0),
        )
    if layout == "expanded":
        if not shape or array.size == 0:
            return np.array(array).reshape(-1), None, 0
        if not np.array_equal(array, np.broadcast_to(array[:1], shape)):
            raise ValueError("make: the slices of dimension 0 differ; use numbers()")
        return np.array(array[0]).reshape(-1), (0, *contiguous_strides(shape[1:])), 0
    raise ValueError(f"make: layout is {layout!r}; expected one of {LAYOUTS}")


def _garbage(size: int, dtype: np.dtype) -> np.ndarray:
    value = {"f": np.nan, "V": np.nan, "b": True}.get(dtype.kind)
    return np.full(size, np.iinfo(dtype).max if value is None else value, dtype)


layouts = st.sampled_from(LAYOUTS)
# Sizes at and next to the edges of blocks and vectors.
edge_sizes = st.sampled_from((0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33))


def shapes(min_dims: int = 0, max_dims: int = 4, limit: int = 2000) -> Any:
    """Shapes of edge sizes with at most `limit` elements."""
    return (
        st.lists(edge_sizes, min_size=min_dims, max_size=max_dims)
        .map(tuple)
        .map(lambda shape: _shrink(shape, limit))
    )


def _shrink(shape: Shape, limit: int) -> Shape:
    while math.prod(shape) > limit:
        largest = max(range(len(shape)), key=shape.__getitem__)
        shape = (*shape[:largest], shape[largest] // 2, *shape[largest + 1 :])
    return shape


# -------------------------------------------------------------------- comparisons


def array_of(a: TensorData) -> np.ndarray:
    """A NumPy copy of the elements of `a`."""
    return np.array(get_backend(a.device).to_numpy(a))


def assert_equal(a: TensorData, expected: Any, dtype: DType | None = None) -> None:
    """`a` has exactly these elements (NaN equals NaN), this shape and this dtype."""
    expected = np.asarray(expected)
    dtype = dtype or dtypes.from_numpy_dtype(expected.dtype)
    assert a.dtype is dtype and a.shape == expected.shape
    np.testing.assert_array_equal(array_of(a), expected)


def assert_close(
    a: TensorData,
    expected: Any,
    dtype: DType | None = None,
    tolerance: float | None = None,
) -> None:
    """As `assert_equal`, but elements may differ by `tolerance * (|expected| + 1)`.

    The tolerance is 2e-6 for float32, 1e-12 for float64 and 0 for others by default.
    """
    expected = np.asarray(expected)
    dtype = dtype or dtypes.from_numpy_dtype(expected.dtype)
    assert a.dtype is dtype and a.shape == expected.shape
    if tolerance is None:
        tolerance = {"float32": 2e-6, "float64": 1e-12}.get(dtype.name, 0)
    np.testing.assert_allclose(
        array_of(a), expected, rtol=tolerance, atol=tolerance, equal_nan=True
    )


# ------------------------------------------------------------------------- files

DAMAGES = ("empty", "half", "zeros", "random", "one bit")


def damaged(content: bytes, how: str) -> bytes:
    """What a full disk, a stopped machine or a bad sector leave of a file."""
    half = content[: len(content) // 2]
    return {
        "empty": b"",
        "half": half,
        "zeros": bytes(len(content)),
        "random": np.random.default_rng(0).bytes(len(content)),
        "one bit": half[:-1] + bytes([half[-1] ^ 1]) + content[len(half) :],
    }[how]


# ------------------------------------------------------------------------- traces


def rows_of_trace(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The spans of a trace by the names of rows; it is as the Trace Event Format says.

    Every event says what it is, when and where; rows have names; and spans of a row lie
    inside of each other or apart.
    """
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] in ("ms", "ns")
    names: dict[tuple[int, int], str] = {}
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        assert {"ph", "name", "ts", "pid", "tid"} <= set(event)
        assert type(event["pid"]) is type(event["tid"]) is int
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            assert event["name"] == "thread_name"
            names[place] = event["args"]["name"]
            continue
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        rows.setdefault(place, []).append(event)
    assert set(rows) == set(names)
    found: dict[str, list[dict[str, Any]]] = {}
    for place, spans in rows.items():
        _assert_nested(spans)
        found.setdefault(names[place], []).extend(spans)
    return found


def _assert_nested(spans: list[dict[str, Any]]) -> None:
    """Compared in nanoseconds, as viewers do."""
    ends: list[int] = []
    for span in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
        start = round(1000 * span["ts"])
        end = start + round(1000 * span["dur"])
        while ends and start >= ends[-1]:
            ends.pop()
        assert not ends or end <= ends[-1]
        ends.append(end)


@contextmanager
def nothing_for_the_collector() -> Iterator[None]:
    """What the block makes is given back by itself: no tensor waits in a cycle."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        kinds = {TensorData, Context}  # isinstance would ask proxies of what is gone
        assert not [x for x in gc.garbage if type(x) in kinds]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def lively_gpt(**config: Any) -> GPT:
    """A model that is sure of little, and says other things after other texts."""
    minitorch.manual_seed(6)
    model = GPT(GPTConfig(**config, dropout=0.5))
    with minitorch.no_grad():
        for p in model.parameters():
            p.add_(minitorch.randn_like(p) * 0.4)
    return model
