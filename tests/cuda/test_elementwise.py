"""map, zip and where around the edges of vectors, tiles and broadcasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import LAYOUTS, assert_close, assert_equal, make, numbers
from minitorch import dtypes, operators
from minitorch.tensor_data import TensorData, contiguous_strides
from tests.cuda.sizes import big

pytest.importorskip("numba_cuda")
from cuda_ops import elementwise, linear, ternary
from cuda_ops.elementwise import LARGE, ONE_BY_ONE, ROW, RUN, repeats
from cuda_ops.memory import STEP, TILE
from cuda_ops.runtime.launch import SIMULATED

EDGES = [0, 1, 3, 4, 5, STEP - 1, STEP, STEP + 1, LARGE - 1, LARGE, LARGE + 3]
EDGES += [LARGE + TILE - 1, LARGE + TILE]


@pytest.mark.parametrize("n", EDGES)
@pytest.mark.parametrize("layout", ["contiguous", "offset"])
def test_sizes_around_vectors_and_tiles(n: int, layout: str) -> None:
    """ "offset" begins 12 bytes behind a multiple of 16."""
    a, b = numbers((n,), seed=1), numbers((n,), seed=2)
    x, y = make(a, "cuda", layout), make(b, "cuda", "contiguous")
    assert_equal(elementwise.map(operators.neg, x), -a)
    assert_equal(elementwise.zip(operators.add, x, y), a + b)
    assert_equal(elementwise.zip(operators.sub, y, x), b - a)


@pytest.mark.parametrize("dtype", dtypes.COMPUTED, ids=lambda d: d.name)
def test_every_dtype_on_large_tensors(dtype: dtypes.DType) -> None:
    a = numbers((LARGE + 5,), dtype)
    x = make(a, "cuda")
    assert_equal(elementwise.map(operators.identity, x), a)
    same = elementwise.zip(operators.eq, x, x, dtypes.bool_)
    assert_equal(same, np.ones(len(a), bool))


SHAPES = [
    ((3, 8), (8,), ROW),
    ((3, 7), (7,), ONE_BY_ONE),
    ((5, 8), (5, 1), RUN),
    ((5, 3), (5, 1), ONE_BY_ONE),
    ((2, 3, 4, 4), (1, 3, 1, 1), RUN),
    ((2, 3, 4, 4), (3, 1, 1), RUN),
    ((2, 3, 5), (1,), RUN),
    ((2, 3, 5), (1, 1, 1), RUN),
    ((4, 3, 5), (4, 1, 5), None),
]


@pytest.mark.parametrize("shape, small, mode", SHAPES)
@pytest.mark.parametrize("swap", [False, True])
def test_broadcasts(shape: Any, small: Any, mode: int | None, swap: bool) -> None:
    a, b = numbers(shape, seed=1), numbers(small, seed=2)
    x, y = make(a, "cuda"), make(b, "cuda")
    if swap:
        assert_equal(elementwise.zip(operators.sub, y, x), b - a)
    else:
        assert_equal(elementwise.zip(operators.sub, x, y), a - b)
    found = repeats(small, contiguous_strides(small), shape)
    assert (found is None) == (mode is None)
    if found is not None:
        out = elementwise.empty(shape, dtypes.float32)
        flats = x.flat(), y.flat(), out.flat()
        assert elementwise.repeat_mode(*found, *flats) == mode


def test_what_repeats() -> None:
    assert repeats((5, 1), (1, 1), (3, 5, 8)) == (5, 8)
    assert repeats((8,), (1,), (3, 5, 8)) == (8, 1)
    assert repeats((5, 8), (8, 1), (3, 5, 8)) == (40, 1)
    assert repeats((), (), (3, 5)) == (1, 16)
    assert repeats((8,), (2,), (3, 8)) is None
    assert repeats((3, 1, 8), (8, 8, 1), (3, 5, 8)) is None


@pytest.mark.parametrize("value", [2, 0.5, -3.0])
def test_numbers(value: float) -> None:
    """A tensor of one element made from a number, on either side, and read later."""
    from minitorch.backend import get_backend

    a = numbers((3, 5))
    x = make(a, "cuda")
    y = get_backend("cuda").full((), value, dtypes.float32)
    assert_close(elementwise.zip(operators.mul, x, y), a * np.float32(value))
    assert_close(elementwise.zip(operators.sub, y, x), np.float32(value) - a)
    assert_equal(y, np.float32(value))
    assert_close(elementwise.zip(operators.mul, x, y), a * np.float32(value))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_numbers_of_every_dtype(dtype: dtypes.DType) -> None:
    from minitorch.backend import get_backend

    value = {"bool": True, "int64": 2**40 + 3, "int32": -7}.get(dtype.name, -0.1)
    made = get_backend("cuda").full((1, 1), value, dtype)
    assert_equal(made, np.full((1, 1), value, dtype.numpy))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_operands(layout: str) -> None:
    shape = (4, 300, 17) if big else (2, 3, 17)
    a, b = numbers(shape, seed=1, layout=layout), numbers(shape, seed=2)
    x, y = make(a, "cuda", layout), make(b, "cuda", "permuted")
    assert_equal(elementwise.map(operators.neg, x), -a)
    assert_equal(elementwise.zip(operators.add, x, y), a + b)


def test_in_place_on_a_part_of_a_tensor() -> None:
    a = numbers((6, 8))
    whole = make(a, "cuda")
    part = whole.slice(0, 2, 3)
    elementwise.zip(operators.mul, part, part, out=part)
    expected = a.copy()
    expected[2:5] *= a[2:5]
    assert_equal(whole, expected)
    elementwise.map(operators.neg, part, out=part)
    expected[2:5] *= -1
    assert_equal(whole, expected)


def test_where_takes_numbers_and_tensors() -> None:
    a, c = numbers((5, 7)), numbers((5, 7), dtypes.bool_)
    x, condition = make(a, "cuda"), make(c, "cuda")
    one = make(np.full((), 3, np.float32), "cuda")
    assert_equal(elementwise.where(condition, x, one), np.where(c, a, np.float32(3)))
    assert_equal(elementwise.where(condition, one, x), np.where(c, np.float32(3), a))
    if SIMULATED:  # where numbers are arrays, and no arguments as on a GPU
        for swap in (False, True):
            out, three = np.zeros(35, np.float32), np.float32(3)
            flat = c.reshape(-1), a.reshape(-1)
            elementwise.where_number.simulate((1, 32), *flat, three, out, swap)
            assert np.array_equal(out, np.where(flat[0] != swap, flat[1], three))


@pytest.mark.parametrize("n", [1, 3, 4, 8, 129])
def test_bias_and_activation(n: int) -> None:
    rows = 1000 if big else 5
    a, b, g = numbers((rows, n)), numbers((n,), seed=3), numbers((rows, n), seed=4)
    x, bias, grad = make(a, "cuda"), make(b, "cuda"), make(g, "cuda")
    assert_equal(linear.bias_activation(x, bias, operators.relu), np.maximum(a + b, 0))
    assert_equal(linear.bias_activation(x, bias, None), a + b)
    assert_equal(
        linear.bias_activation_backward(grad, x, bias, operators.relu_backward),
        np.where(a + b > 0, g, np.float32(0)),
    )
    assert_equal(linear.bias_activation(x, bias, None, x), a + b)
    assert_equal(x, a + b)


def test_bias_into_a_view() -> None:
    a, b = numbers((4, 6)), numbers((6,), seed=3)
    whole = make(np.zeros((4, 12), np.float32), "cuda")
    out = TensorData(whole.storage, (4, 6), (12, 2), 1)
    linear.bias_activation(make(a, "cuda"), make(b, "cuda"), None, out)
    expected = np.zeros((4, 12), np.float32)
    expected[:, 1::2] = a + b
    assert_equal(whole, expected)


@pytest.mark.skipif(not SIMULATED, reason="only the simulator runs a kernel by itself")
@pytest.mark.parametrize("n", [1, 4, 7, STEP + 2])
@pytest.mark.parametrize("vectors", [False, True])
def test_three_numbers_of_which_one_is_an_argument(n: int, vectors: bool) -> None:
    """The simulator's `zip3` itself knows no numbers."""
    a, b = numbers((n,), seed=1), numbers((n,), seed=2)
    x, y = make(a, "cuda"), make(b, "cuda")
    out, part = elementwise.empty((n,), dtypes.float32), np.float32(0.25)
    run = ternary.ZIP3_NUMBER[operators.lerp]
    run.simulate((2, 128), x.flat(), y.flat(), part, np.float32(1), out.flat(), vectors)
    assert_close(out, a + part * (b - a))
