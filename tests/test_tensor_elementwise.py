"""Elementwise operations: values, result dtypes, broadcasting, NaN and gradients."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from operations import TORCH_DTYPES, assert_same
from strategies import broadcastable_shapes, dtype_names, sample, seeds, tensors

import minitorch
from helpers import LAYOUTS, make, numbers
from minitorch import Tensor, dtypes

inf, nan = math.inf, math.nan


# ------------------------------------------------------------------- result dtypes

OPERATORS = {
    "add": operator.add,
    "mul": operator.mul,
    "div": operator.truediv,
    "lt": operator.lt,
    "eq": operator.eq,
}


def pairs() -> Any:
    """All dtypes with 0 or 1 dimensions, and the Python numbers."""
    tensors = [(dtype, shape) for dtype in dtypes.ALL for shape in [(), (2,)]]
    return list(itertools.product(tensors, [*tensors, True, 3, 2.5]))


@pytest.mark.parametrize("name", OPERATORS)
def test_result_dtypes_are_torch_s(name):
    """The rule is the same on every device, so one is enough."""
    fn = OPERATORS[name]

    def operand(lib: Any, what: Any) -> Any:
        if not isinstance(what, tuple):
            return what
        dtype = what[0] if lib is minitorch else TORCH_DTYPES[what[0]]
        where = {"device": "simple"} if lib is minitorch else {}
        return lib.ones(what[1], dtype=dtype, **where)

    for left, right in pairs():
        for a, b in ((left, right), (right, left)):
            mine = fn(operand(minitorch, a), operand(minitorch, b))
            theirs = fn(operand(torch, a), operand(torch, b))
            assert_same(mine, theirs, 1e-6, f"{a} {name} {b}")


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(2.5), np.int64(2)])
def test_numpy_scalars(device, number):
    x = minitorch.tensor([1.0, 2.0], device=device)
    expected = [1.0 * float(number), 2.0 * float(number)]
    for out in (x * number, number * x):
        assert out.dtype is minitorch.float32 and out.tolist() == expected
    assert (number - x).tolist() == [float(number) - 1.0, float(number) - 2.0]
    assert (number > x).tolist() == [True, float(number) > 2.0]


def test_an_array_is_no_operand():
    x, array = minitorch.ones(2), np.ones(2)
    for name in "add sub mul truediv matmul pow eq ne lt le gt ge".split():
        of = getattr(operator, name)
        with pytest.raises(TypeError, match=r"ndarray"):
            of(x, array)
        if name not in ("matmul", "pow"):  # whose arrays NumPy asks first
            with pytest.raises(TypeError, match=r"ndarray"):
                of(array, x)
    assert (x == None, x != None) == (False, True)  # noqa: E711


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_numpy_bools(device, dtype):
    x = minitorch.tensor([1, 2], device=device).to(getattr(minitorch, dtype))
    for out in (x + np.True_, x.masked_fill(x > 0, np.True_) * x + 1):
        assert out.dtype is x.dtype and out.tolist() == [2, 3]
    assert (x == np.True_).tolist() == [True, False]


# ------------------------------------------------------------ NaN, infinities, zeros

SPECIAL = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 1e-30, -1e30, 1e30, 0.5, 100.0, -100.0]
UNARY = (
    "neg abs sign floor ceil round exp expm1 log log1p log2 log10 sqrt rsqrt "
    "reciprocal sin cos acos sinh cosh tanh erf sigmoid relu isnan isinf isfinite "
    "logical_not gelu silu elu leaky_relu softplus"
).split()


@pytest.mark.parametrize("dtype", [minitorch.float32, minitorch.float64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_special_values(device, name, dtype):
    values = [v for v in SPECIAL if not (name in ("sin", "cos") and abs(v) > 1e20)]
    if name == "sign":  # sign(NaN) is NaN here, as in NumPy, and 0 in torch
        values = [v for v in values if v == v]
    if name == "gelu":  # torch's float32 kernel has inf * 0 there
        values = [v for v in values if v != inf]
    x = minitorch.tensor(values, dtype=dtype, device=device)
    t = torch.tensor(values, dtype=TORCH_DTYPES[dtype])
    fn = getattr(t, name, None) or (lambda: getattr(torch.nn.functional, name)(t))
    assert_same(getattr(x, name)(), fn(), 1e-5, name)


BINARY = [
    *[getattr(operator, name) for name in "add sub mul truediv pow".split()],
    *[getattr(operator, name) for name in "lt le gt ge eq ne mod".split()],
    lambda a, b: a.maximum(b),
    lambda a, b: a.minimum(b),
]


@pytest.mark.parametrize("fn", BINARY)
def test_special_pairs(device, fn):
    values = [v for v in SPECIAL if abs(v) < 1e20 or v == inf or v == -inf or v != v]
    for dtype in (minitorch.float32, minitorch.float64):
        where = {"dtype": dtype, "device": device}
        a, b = minitorch.tensor(values, **where), minitorch.tensor(values, **where)
        t = torch.tensor(values, dtype=TORCH_DTYPES[dtype])
        expected = fn(t[:, None], t[None, :])
        assert_same(fn(a[:, None], b[None, :]), expected, 1e-5)


@pytest.mark.parametrize("low, high", [(-1, 1), (None, 0.5), (0.5, None), (1, -1)])
def test_clamp_of_special_values(device, low, high):
    x = minitorch.tensor(SPECIAL, device=device)
    assert_same(x.clamp(low, high), torch.tensor(SPECIAL).clamp(low, high))


GRADIENTS = (
    "abs relu sqrt rsqrt log sigmoid tanh gelu silu elu leaky_relu softplus exp"
).split()


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_at_special_values(device, name):
    values = [0.0, -0.0, nan, inf, -inf, 30.0, -30.0, 200.0, -200.0]
    x = minitorch.tensor(values, dtype=minitorch.float64, device=device)
    t = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    getattr(x.requires_grad_(), name)().sum().backward()
    fn = getattr(t, name, None) or (lambda: getattr(torch.nn.functional, name)(t))
    fn().sum().backward()
    keep = np.ones(len(values), bool)
    if name == "elu":  # NaN stays NaN here; torch has 1
        keep[2] = False
    if name in ("gelu", "silu"):  # torch has nan where the limit is 1 or 0
        keep[3:5] = False
    assert np.allclose(x.grad.numpy()[keep], t.grad.numpy()[keep], equal_nan=True), name


def test_gradients_of_powers_at_zero(device):
    for exponent in (0.0, 1.0, 2.0, 3.0, 0.5, -1.0):
        x = minitorch.tensor([0.0, 2.0, -2.0], dtype=minitorch.float64, device=device)
        t = torch.tensor([0.0, 2.0, -2.0], dtype=torch.float64, requires_grad=True)
        (x.requires_grad_() ** exponent).sum().backward()
        (t**exponent).sum().backward()
        assert_same(x.grad, t.grad, 1e-12, f"x ** {exponent}")


def test_ties_share_the_gradient(device):
    def run(lib: Any, **where: Any) -> list[Any]:
        a = lib.tensor([1.0, 2.0, 3.0], requires_grad=True, **where)
        b = lib.tensor([1.0, 3.0, 2.0], requires_grad=True, **where)
        (lib.maximum(a, b).sum() + 3 * lib.minimum(a, b).sum()).backward()
        return [a.grad, b.grad]

    for mine, theirs in zip(run(minitorch, device=device), run(torch)):
        assert_same(mine, theirs)


def test_clamp_gradient_at_the_bounds(device):
    """It passes there, as PyTorch's does before 2.14."""
    x = minitorch.tensor([-1.0, 0.0, 1.0, 2.0], device=device, requires_grad=True)
    x.clamp(0, 1).sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 0]


# ------------------------------------------------------------------------ integers


@pytest.mark.parametrize("fn", [operator.floordiv, operator.mod], ids=["//", "%"])
def test_division_rounds_down(device, fn):
    a, b = [7, -7, 7, -7, 0, 6], [2, 2, -2, -2, 3, -3]
    for dtype in (minitorch.int64, minitorch.int32, minitorch.float32):
        x = minitorch.tensor(a, dtype=dtype, device=device)
        y = minitorch.tensor(b, dtype=dtype, device=device)
        s, t = (torch.tensor(v, dtype=TORCH_DTYPES[dtype]) for v in (a, b))
        assert_same(fn(x, y), fn(s, t))


def test_integers_wrap_around(device):
    for dtype, top in ((minitorch.int32, 2**31 - 1), (minitorch.int64, 2**63 - 1)):
        x = minitorch.tensor([top, -top - 1], dtype=dtype, device=device)
        t = torch.tensor([top, -top - 1], dtype=TORCH_DTYPES[dtype])
        assert_same(x + 1, t + 1)
        assert_same(x * 3, t * 3)
        assert_same(-x, -t)


def test_large_int64_keep_all_digits(device):
    x = minitorch.tensor([2**60 + 1, -(2**53) - 1], device=device)
    assert (x + 1).tolist() == [2**60 + 2, -(2**53)]
    assert x.abs().tolist() == [2**60 + 1, 2**53 + 1]
    assert x.sum().item() == 2**60 - 2**53
    assert x.max().item() == 2**60 + 1


def test_casts_go_toward_zero(device):
    values = [1.9, -1.9, 0.0, -0.5, 3.0]
    x = minitorch.tensor(values, device=device)
    t = torch.tensor(values)
    assert_same(x.long(), t.long())
    assert_same(x.int(), t.int())
    assert_same(x.bool(), t.bool())
    assert_same(x.long().double(), t.long().double())
    assert_same(x.bool().float(), t.bool().float())


# ----------------------------------------------------------------------- properties


@given(shapes=broadcastable_shapes(), dtype=dtype_names, seed=seeds)
def test_broadcasting(device, shapes, dtype, seed):
    a = sample(device, shapes.input_shapes[0], dtype, seed=seed)
    b = sample(device, shapes.input_shapes[1], dtype, seed=seed + 1)
    s, t = torch.from_numpy(a.array), torch.from_numpy(b.array)
    assert_same(a.tensor + b.tensor, s + t)
    assert_same(a.tensor == b.tensor, s == t)
    assert tuple((a.tensor + b.tensor).shape) == shapes.result_shape


@settings(max_examples=15)
@given(data=st.data())
def test_any_layout_gives_the_same(device, data):
    x, array = data.draw(tensors(device))
    t = torch.from_numpy(array)
    assert_same(x.sigmoid(), t.sigmoid(), 1e-6)
    assert_same(x * 2, t * 2)
    assert_same(minitorch.where(x > 0, x, 1), torch.where(t > 0, t, 1))
    assert_same(x.isnan(), t.isnan())


def test_where_with_numbers(device):
    condition = minitorch.tensor([True, False], device=device)
    t = torch.tensor([True, False])
    for a, b in ((1, 2), (1.0, 2), (True, False), (1, 2.5)):
        assert_same(minitorch.where(condition, a, b), torch.where(t, a, b), what=f"{a}")
    x = minitorch.tensor([1.0, 2.0], device=device)
    assert x.where(condition, 0).tolist() == [1.0, 0.0]
    assert x.where(x > 5, x * 10).tolist() == [10.0, 20.0]


# ------------------------------------------------------- functions, and comparisons

FUNCTIONS = (
    "neg abs sign floor ceil round exp expm1 log log1p log2 log10 sqrt rsqrt "
    "reciprocal square sin cos acos sinh cosh tanh erf sigmoid relu logical_not isnan "
    "isinf isfinite"
).split()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_forms(name):
    x = minitorch.tensor([0.5, 1.5], device="simple")
    assert_same(
        getattr(minitorch, name)(x),
        getattr(torch, name)(torch.tensor([0.5, 1.5])),
        1e-6,
    )
    with pytest.raises(TypeError, match=rf"{name}: .*float.*minitorch.tensor"):
        getattr(minitorch, name)(1.5)
    assert getattr(minitorch.Tensor, name) is getattr(minitorch, name)


def test_two_operand_function_forms():
    a, b = [3.0, -2.0, 5.0], [2.0, 2.0, 5.0]
    names = "add sub mul div maximum minimum floor_divide remainder lt le gt ge eq ne"
    for name in names.split():
        x, y = (minitorch.tensor(v, device="simple") for v in (a, b))
        expected = getattr(torch, name)(torch.tensor(a), torch.tensor(b))
        assert_same(getattr(minitorch, name)(x, y), expected, 1e-6, name)
    x = minitorch.tensor(a, device="simple")
    assert_same(minitorch.pow(x, 3), torch.pow(torch.tensor(a), 3))
    assert_same(minitorch.clamp(x, -1, 1), torch.clamp(torch.tensor(a), -1, 1))


def test_equal_and_allclose(device):
    x = minitorch.tensor([1.0, 2.0, inf], device=device)
    assert x.equal(x.clone()) and not x.equal(x + 1) and not x.equal(x[:2])
    assert minitorch.equal(x, x)
    assert x.allclose(x * (1 + 1e-6)) and not x.allclose(x + 0.1)
    y = minitorch.tensor([1.0, nan], device=device)
    assert not y.allclose(y) and y.allclose(y, equal_nan=True)


def test_masked_fill_in_place_and_isclose(device):
    x = minitorch.tensor([1.0, -2.0, nan], device=device)
    t = torch.tensor([1.0, -2.0, nan])
    assert_same(x.masked_fill_(x < 0, 5), t.masked_fill_(t < 0, 5))
    assert_same(minitorch.masked_fill(x, x > 2, -inf), t.masked_fill(t > 2, -inf))
    assert_same(minitorch.isclose(x, x + 1e-7), torch.isclose(t, t + 1e-7))
    assert_same(x.isclose(x, equal_nan=True), t.isclose(t, equal_nan=True))
    assert_same(minitorch.clip(x, 0, 2), torch.clip(t, 0, 2))
    assert_same(minitorch.logical_xor(x > 2, x > 0), torch.logical_xor(t > 2, t > 0))


def test_squares_of_bools_are_integers(device):
    x = minitorch.tensor([True, False], device=device)
    assert_same(x**2, torch.tensor([True, False]) ** 2)


def test_python_conversions(device):
    x = minitorch.tensor(2.5, device=device)
    assert float(x) == 2.5 and int(x) == 2 and bool(x) and f"{x:.3f}" == "2.500"
    n = minitorch.tensor(3, device=device)
    assert [10, 11, 12, 13][n] == 13 and list(range(n)) == [0, 1, 2]
    assert minitorch.tensor([[4]], device=device).item() == 4
    assert 1.0 in minitorch.tensor([1.0, 2.0], device=device)
    assert 5.0 not in minitorch.tensor([1.0, 2.0], device=device)
    assert len({x, n, x}) == 2


def test_functions_in_place(device):
    """Other names of the memory see them, in any layout and in halves."""
    for layout in LAYOUTS[:-1]:
        array = numbers((3, 4), minitorch.float64, 1, layout)
        x = Tensor(make(array, device, layout))
        part = x[1:, ::2]
        assert part.sin_() is part
        array[1:, ::2] = np.sin(array[1:, ::2])
        np.testing.assert_allclose(x.abs_().sqrt_().numpy(), np.sqrt(np.abs(array)))
    for kind in (minitorch.float16, minitorch.bfloat16):
        x = minitorch.tensor([0.0, 4.0], dtype=kind, device=device)
        assert x.sqrt_().tolist() == [0.0, 2.0] and x.dtype is kind
    x = minitorch.tensor([3, -2], device=device)
    assert x.neg_().relu_().tolist() == [0, 2]
    with pytest.raises(TypeError, match="exp_: "):
        x.exp_()
    leaf = minitorch.ones(2, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.exp_()
    y = leaf * 2
    assert y.detach_() is y and not y.requires_grad and y.is_leaf
    with pytest.raises(RuntimeError, match="detach_: "):
        (leaf * 2)[0].detach_()


def test_lerp_reaches_its_end_and_says_what_is_wrong(device):
    x = minitorch.tensor([1e8, -1.0], device=device)
    end = minitorch.tensor([1.0, 3.0], device=device)
    assert x.lerp(end, 1).tolist() == [1.0, 3.0]
    for wrong in (
        lambda: x.lerp(end.double(), 0.5),
        lambda: x.lerp(2.0, 0.5),
        lambda: x.lerp(end, end.double()),
        lambda: x.long().lerp(end.long(), 0.5),
        lambda: x.lerp_(end.double(), 0.5),
        lambda: x.addcdiv(x.long(), x.long()),
    ):
        with pytest.raises(TypeError, match=r"(lerp_?|addcdiv): "):
            wrong()
    with pytest.raises(ValueError, match="lerp_: "):
        x.lerp_(minitorch.ones(3, 2, device=device), 0.5)


def test_result_type():
    """Of tensors with dims and without, and numbers, as in PyTorch."""

    def operands(lib):
        kinds = [getattr(lib, kind.name) for kind in dtypes.ALL]
        tensors = [lib.ones(n, dtype=k) for n in ((), (2,), (0, 1)) for k in kinds]
        return [*tensors, True, 3, 2.5]

    for (a, s), (b, t) in itertools.product(
        zip(operands(minitorch), operands(torch)), repeat=2
    ):
        found = minitorch.result_type(a, b)
        assert repr(found)[10:] == str(torch.result_type(s, t))[6:], (s, t)
    with pytest.raises(TypeError, match=r"result_type: got a str; .* or a tensor"):
        minitorch.result_type(minitorch.ones(1), "2")


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("method", ["addcmul", "addcmul_"])
def test_the_value_of_addcmul_is_a_number(device, method, dtype):
    x = minitorch.tensor([1, 2], device=device).to(getattr(minitorch, dtype))
    one = minitorch.tensor(1.0, device=device, requires_grad=True)  # no gradient for it
    for wrong in (one, one.detach(), minitorch.ones(2, device=device), np.ones(1), 1j):
        with pytest.raises(TypeError, match=f"{method}: got a .*number"):
            getattr(x, method)(x, x, value=wrong)
    assert getattr(x, method)(x, x, value=True).tolist() == [2, 6]
