"""Elementwise kernels of the CPU backend: how operands lie, aliasing, accuracy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fast_ops import elementwise, vector_math
from fast_ops.launch import SERIAL_LIMIT
from minitorch import dtypes, operators
from minitorch.backend import get_backend
from minitorch.tensor_data import Storage, TensorData

cpu = get_backend("cpu")

SIZES = [0, 1, 15, 17, 1025, SERIAL_LIMIT - 1, SERIAL_LIMIT, SERIAL_LIMIT + 33]


def data(array: np.ndarray) -> TensorData:
    return cpu.from_numpy(np.array(array, order="C"))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_zip_of_flat_operands(size: int) -> None:
    a, b = numbers(size), numbers(size, seed=1)
    got = cpu.to_numpy(cpu.zip(operators.add, data(a), data(b)))
    np.testing.assert_array_equal(got, a + b)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "a row": lambda x: x[:1],
    "a column": lambda x: x[:, :1],
    "narrow": lambda x: x[:, :3],
    "backwards": lambda x: x[::-1, ::-1],
    "permuted": lambda x: x.reshape(4, 5, 3, -1).transpose(3, 1, 0, 2),
    "six dims": lambda x: x.reshape(2, 2, 5, 3, 2, -1).transpose(5, 1, 3, 0, 2, 4),
}


def strided(view: np.ndarray, base: np.ndarray) -> TensorData:
    """`view` as a TensorData that shares the memory of `base`."""
    start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    steps = tuple(step // base.itemsize for step in view.strides)
    dtype = dtypes.from_numpy_dtype(base.dtype)
    storage = Storage(base.reshape(-1), dtype, "cpu")
    return TensorData(storage, view.shape, steps, start // base.itemsize)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("shape", [(60, 4), (60, 600)])
def test_map_copy_and_zip_of_any_strides(name: str, shape: tuple[int, int]) -> None:
    base = numbers(*shape)
    view = LAYOUTS[name](base)
    a = strided(view, base)
    got = cpu.to_numpy(cpu.copy(a, dtypes.float32))
    np.testing.assert_array_equal(got, view)
    got = cpu.to_numpy(cpu.map(operators.neg, a))
    np.testing.assert_array_equal(got, -view)
    other = numbers(*view.shape, seed=2)
    for x, y in ((a, data(other)), (data(other), a)):
        got = cpu.to_numpy(cpu.zip(operators.sub, x, y))
        expected = cpu.to_numpy(x) - cpu.to_numpy(y)
        np.testing.assert_array_equal(got, expected)


@given(st.data())
def test_broadcast(choices: st.DataObject) -> None:
    rank = choices.draw(st.integers(0, 5))
    full = choices.draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    shapes = []
    for _ in range(3):
        shape = [n if choices.draw(st.booleans()) else 1 for n in full]
        shapes.append(tuple(shape[choices.draw(st.integers(0, rank)) :]))
    a, b, c = (numbers(*shape, seed=i) for i, shape in enumerate(shapes))
    got = cpu.to_numpy(cpu.zip(operators.mul, data(a), data(b)))
    assert got.shape == (a * b).shape
    np.testing.assert_array_equal(got, a * b)
    got = cpu.to_numpy(cpu.where(data(c > 0), data(a), data(b)))
    expected = np.where(c > 0, a, b)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("n", [7, 200])
def test_out_may_be_an_operand(n: int) -> None:
    for index in ((slice(None), slice(None)), (slice(None), slice(0, 3))):
        base, b = numbers(n, n), numbers(n, n, seed=1)
        view = base[index]
        expected = view - b[index]
        out = strided(view, base)
        cpu.zip(operators.sub, out, strided(b[index], b), out=out)
        np.testing.assert_array_equal(view, expected)
        cpu.map(operators.neg, out, out=out)
        np.testing.assert_array_equal(view, -expected)
        cpu.zip(operators.sub, strided(b[index], b), out, out=out)
        np.testing.assert_array_equal(view, b[index] + expected)


def test_out_may_overlap_an_operand() -> None:
    for n in (20, 50_000):
        base = numbers(n)
        before = base.copy()
        out, a = strided(base[1:], base), strided(base[:-1], base)
        cpu.zip(operators.add, a, a, out=out)
        np.testing.assert_array_equal(base[1:], before[:-1] * 2)
        before = base.copy()
        cpu.map(operators.neg, a, out=out)
        np.testing.assert_array_equal(base[1:], -before[:-1])
        before = base.copy()
        cpu.copy_into(out, a)
        np.testing.assert_array_equal(base[1:], before[:-1])
        backwards = strided(base[::-1], base)
        before = base.copy()
        cpu.zip(operators.sub, strided(base, base), backwards, out=backwards)
        np.testing.assert_array_equal(base, (before - before[::-1])[::-1])


def test_one_number_joins_either_side_and_stays_what_it_was() -> None:
    a = numbers(300)
    two = cpu.full((), 2.0, dtypes.float32)
    got = cpu.zip(operators.sub, data(a), two)
    np.testing.assert_array_equal(cpu.to_numpy(got), a - np.float32(2))
    got = cpu.zip(operators.sub, two, data(a))
    np.testing.assert_array_equal(cpu.to_numpy(got), np.float32(2) - a)
    x = data(a.copy())
    cpu.zip(operators.mul, x, two, out=x)
    np.testing.assert_array_equal(cpu.to_numpy(x), a * 2)
    first = TensorData(x.storage, (), (), 5)  # an element of x itself
    old = cpu.to_numpy(x).copy()
    cpu.zip(operators.mul, x, first, out=x)
    np.testing.assert_array_equal(cpu.to_numpy(x), old * old[5])


@pytest.mark.parametrize("dtype", dtypes.COMPUTED, ids=lambda d: d.name)
def test_every_dtype(dtype: dtypes.DType) -> None:
    a = (numbers(70) * 3).astype(dtype.numpy)
    b = (numbers(70, seed=1) * 3).astype(dtype.numpy)
    got = cpu.zip(operators.maximum, data(a), data(b))
    assert got.dtype is dtype
    np.testing.assert_array_equal(cpu.to_numpy(got), np.maximum(a, b))
    got = cpu.zip(operators.lt, data(a), data(b), dtypes.bool_)
    np.testing.assert_array_equal(cpu.to_numpy(got), a < b)
    for other in dtypes.ALL:
        got = cpu.to_numpy(cpu.copy(data(a), other))
        np.testing.assert_array_equal(got, a.astype(other.numpy))


def test_a_users_function() -> None:
    def smooth(x: float) -> float:
        return x * x / (1.0 + x * x)

    a = numbers(1000)
    got = cpu.to_numpy(cpu.map(smooth, data(a)))
    np.testing.assert_allclose(got, a * a / (1 + a * a), rtol=1e-6)


# --------------------------------------------------------- accuracy of fast forms

ORACLES: dict[Callable, Callable[[torch.Tensor], torch.Tensor]] = {
    operators.exp: torch.exp,
    operators.log: torch.log,
    operators.log1p: torch.log1p,
    operators.expm1: torch.expm1,
    operators.softplus: lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    operators.tanh: torch.tanh,
    operators.erf: torch.erf,
    operators.sigmoid: torch.sigmoid,
    operators.silu: torch.nn.functional.silu,
    # written so that nothing cancels in the lower tail, as it would in 1 + erf(x)
    operators.gelu: lambda x: x * torch.erfc(-x * operators.SQRT_HALF) / 2,
    operators.gelu_tanh: lambda x: (
        x * torch.sigmoid(2 * operators.SQRT_2_OVER_PI * (x + 0.044715 * x**3))
    ),
    operators.sign: lambda x: torch.sign(x),
}


def arguments(fn: Callable) -> np.ndarray:
    """Many float32 numbers: dense around 0, and of all magnitudes."""
    rng = np.random.default_rng(3)
    tiny = 10.0 ** rng.uniform(-37, 2, 50_000) * rng.choice([-1, 1], 50_000)
    x = np.concatenate([np.linspace(-9, 9, 200_001), tiny]).astype(np.float32)
    return np.abs(x[x != 0]) if fn is operators.log else x


@pytest.mark.parametrize("fn", ORACLES, ids=lambda f: f.__name__)
def test_fast_forms_are_within_four_units_in_the_last_place(fn: Callable) -> None:
    x = arguments(fn)
    got = cpu.to_numpy(cpu.map(fn, data(x))).astype(np.float64)
    exact = ORACLES[fn](torch.from_numpy(x).double()).numpy()
    in_range = (np.abs(exact) > 1e-36) & (np.abs(exact) < 3e38)
    # x * x is rounded before it goes into an exponent: relative error grows with it
    slack = 4 + (x * x if fn in (operators.gelu, operators.gelu_tanh) else 0)
    if fn is operators.gelu_tanh:
        slack = slack + np.abs(x) ** 3
    error = np.abs(got - exact) / np.maximum(np.abs(exact), 1e-36)
    assert np.all((error <= slack * 2.0**-23)[in_range])
    small = np.abs(exact) <= 1e-36
    assert np.all(np.abs(got[small]) <= 2e-36)


@pytest.mark.parametrize("fn", ORACLES, ids=lambda f: f.__name__)
def test_fast_forms_at_the_ends(fn: Callable) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0, 200, -200, 1e38, -1e38], np.float32)
    got = cpu.to_numpy(cpu.map(fn, data(x)))
    exact = ORACLES[fn](torch.from_numpy(x).double()).float().numpy()
    if fn is operators.sign:
        exact[2] = np.nan  # torch has 0; operators.sign keeps NaN
    if fn in (operators.silu, operators.gelu, operators.gelu_tanh):
        got, exact = np.delete(got, 1), np.delete(exact, 1)  # 0 * -inf: NaN or -0
    np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-36)


def test_exp_has_denormal_results() -> None:
    x = np.linspace(-103.9, -87, 1000, dtype=np.float32)
    got = cpu.to_numpy(cpu.map(operators.exp, data(x)))
    exact = np.exp(x.astype(np.float64))
    assert np.all(np.abs(got - exact) <= 1.5e-45 + 3e-7 * exact)


BACKWARD = [
    operators.tanh_backward,
    operators.sigmoid_backward,
    operators.silu_backward,
    operators.gelu_backward,
    operators.gelu_tanh_backward,
    operators.sqrt_backward,
    operators.abs_backward,
]


@pytest.mark.parametrize("fn", BACKWARD, ids=lambda f: f.__name__)
def test_fast_backward_forms_agree_with_the_formula(fn: Callable) -> None:
    grad, x = numbers(2000), np.abs(numbers(2000, seed=1)) + 0.01
    if fn is not operators.sqrt_backward:
        x[::2] *= -1
    got = cpu.to_numpy(cpu.zip(fn, data(grad), data(x)))
    exact = [fn(float(g), float(y)) for g, y in zip(grad, x)]
    np.testing.assert_allclose(got, exact, rtol=3e-6, atol=3e-7)


@pytest.mark.parametrize("fn", ORACLES, ids=lambda f: f.__name__)
def test_float64_keeps_full_accuracy(fn: Callable) -> None:
    x = np.abs(np.random.default_rng(0).standard_normal(500)) + 0.1
    got = cpu.to_numpy(cpu.map(fn, data(x)))
    np.testing.assert_allclose(got, [fn(float(v)) for v in x], rtol=1e-14)


def test_every_fast_form_is_reached() -> None:
    for fn, fast in vector_math.FAST.items():
        assert vector_math.fast_form(fn) is fast
    assert operators.add not in vector_math.FAST


def test_extremes_keep_nan_on_both_sides() -> None:
    a = np.array([np.nan, 1, np.nan, -np.inf] * 9, np.float32)
    b = np.array([1, np.nan, np.nan, np.inf] * 9, np.float32)
    for fn, oracle in (
        (operators.maximum, np.maximum),
        (operators.minimum, np.minimum),
    ):
        got = cpu.to_numpy(cpu.zip(fn, data(a), data(b)))
        np.testing.assert_array_equal(got, oracle(a, b))


def test_a_kernel_is_looked_up_not_compiled_again() -> None:
    a = data(numbers(10))
    cpu.zip(operators.add, a, a)
    first = elementwise.ZIP_FLAT[False][operators.add]
    cpu.zip(operators.add, a, a)
    assert elementwise.ZIP_FLAT[False][operators.add] is first
    assert len(first.signatures) >= 1


@pytest.mark.parametrize("fn", [operators.remainder, operators.floor_divide])
def test_quotients_of_any_size(fn: Callable) -> None:
    ends = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-38,
        -1e-40,
        1e30,
        -1e30,
        1e8,
        5.5,
        -3,
    ]
    x, y = np.float32(np.meshgrid(ends, ends)).reshape(2, -1)
    got = cpu.zip(fn, cpu.from_numpy(x), cpu.from_numpy(y)).storage.array
    with np.errstate(over="ignore"):
        expected = [np.float32(fn(float(a), float(b))) for a, b in zip(x, y)]
    np.testing.assert_array_equal(got, expected)
    if fn is operators.remainder:
        numbers = ~np.isnan(got)
        assert (np.signbit(got) == np.signbit(y))[numbers & (got == 0)].all()


@pytest.mark.parametrize("n, k", [(6, 0), (32, 4), (33, 33), (100, 7)])
def test_the_first_of_a_sort(n: int, k: int) -> None:
    a = np.round(numbers(3, n), 1)
    a[0, 1] = np.nan
    for dim, x in ((1, a), (0, a.T.copy())):
        raw = cpu.from_numpy(x)
        places = cpu.to_numpy(cpu.topk(raw, k, dim, True)[1])
        whole = cpu.to_numpy(cpu.sort(raw, dim, True)[1])
        np.testing.assert_array_equal(places, whole.take(range(k), dim))
        signed = np.where(np.isnan(x), -np.inf, -x)  # NaN is above all numbers
        np.testing.assert_array_equal(whole, np.argsort(signed, dim, kind="stable"))
