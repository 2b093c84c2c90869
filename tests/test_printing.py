"""repr: what torch prints, apart from the library's and the grad_fns' names."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operations import TORCH_DTYPES
from strategies import dtype_names, small_shapes

import minitorch

inf, nan = math.inf, math.nan

VALUES = [
    0.0,
    1,
    True,
    2.5,
    [],
    [1.0],
    [1, 2, 3],
    [1, -20, 300],
    [True, False],
    [[True], [False]],
    [1.0, 2.0],
    [1.5, -2.25, 100.125],
    [1e-5, 1.0],
    [1e5, 1.0],
    [1e8, 1.0],
    [1e10, 2e10],
    [123456.0, 1.0],
    [1234567.0, 1.5],
    [99999999.0],
    [100000000.0],
    [0.0001, 0.0002],
    [0.00001, 0.00002],
    [1000.5, 1.0],
    [1001.0, 1.0, 0.5],
    [nan, 1.0],
    [inf, 1.5],
    [-inf, nan],
    [nan, nan],
    [inf, 2.0, -3.0],
    [0.0, 0.0],
    [-0.0, 0.0],
    [[1.0, 2.0], [3.0, 4.0]],
    [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
    [[[[1.5]]]],
    [[], []],
    [[[]]],
    -1.5,
    1e20,
    1e-20,
    nan,
    -inf,
    123456789,
    [10**12, -1],
    [1e-3, 1e3],
    [1e-3, 1.0],
    [0.1 + 0.2, 1 / 3],
    [1e38, 1e-38],
]


def expected(t: torch.Tensor) -> str:
    """What torch prints, with our names."""
    text = repr(t).replace("torch.", "minitorch.")
    return re.sub(r"grad_fn=<\w+>", "grad_fn=<F>", text)


def printed(x: Any) -> str:
    """What we print, without the names of operations."""
    return re.sub(r"grad_fn=<\w+>", "grad_fn=<F>", repr(x))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_repr(value):
    assert printed(minitorch.tensor(value)) == expected(torch.tensor(value))


@pytest.mark.parametrize("shape", [(1001,), (40, 30), (7, 8, 20), (1, 2000), (1200, 1)])
@pytest.mark.parametrize("kind", ["float", "int", "bool"])
def test_repr_of_large_tensors(shape, kind):
    rng = np.random.default_rng(0)
    array = {
        "float": rng.standard_normal(shape).astype(np.float32),
        "int": rng.integers(-1000, 1000, shape),
        "bool": rng.integers(0, 2, shape).astype(bool),
    }[kind]
    assert printed(minitorch.tensor(array)) == expected(torch.tensor(array))


@pytest.mark.parametrize("shape", [(30,), (3, 25), (2, 3, 4), (100,), (2, 1, 1, 3)])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_repr_wraps_lines(shape, scale):
    array = np.random.default_rng(1).standard_normal(shape) * scale
    for dtype in (minitorch.float32, minitorch.float64):
        x = minitorch.tensor(array, dtype=dtype)
        assert printed(x) == expected(torch.tensor(array, dtype=TORCH_DTYPES[dtype]))


@given(shape=small_shapes(0, 4), dtype=dtype_names, seed=st.integers(0, 1000))
def test_repr_of_any_tensor(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-6, 12)
    array = (rng.standard_normal(shape) * scale).astype(np.float32)
    if not dtype.is_floating_point:
        array = rng.integers(-(10 ** rng.integers(1, 9)), 10, shape)
    mine = minitorch.tensor(array, dtype=dtype)
    assert printed(mine) == expected(torch.tensor(array, dtype=TORCH_DTYPES[dtype]))


def test_repr_of_a_graph():
    def run(lib: Any) -> list[Any]:
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        return [x, x * 2, (x * 2).detach(), (x * 3).sum(), x.double()]

    for mine, theirs in zip(run(minitorch), run(torch)):
        assert printed(mine) == expected(theirs)


def test_repr_names_the_device():
    x = minitorch.tensor([1.0, 2.0], device="simple")
    assert repr(x) == "tensor([1., 2.], device='simple')"
    assert str(x) == repr(x) and f"{x}" == repr(x)


def test_repr_of_views():
    x = minitorch.arange(12).reshape(3, 4)
    t = torch.arange(12).reshape(3, 4)
    for mine, theirs in ((x.T, t.T), (x[:, ::2], t[:, ::2]), (x[None, 0], t[None, 0])):
        assert printed(mine) == expected(theirs)


def test_dtypes_print_their_names():
    assert repr(minitorch.float32) == "minitorch.float32"
    assert repr(minitorch.bool) == "minitorch.bool"
