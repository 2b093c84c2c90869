"""One table of all operations on tensors, and the checks that each one goes through.

With this file a test runs its family of operations, `OPERATIONS["reduce"]`, through

- `check_forward`: values, shapes and dtypes are torch's, for every dtype and layout;
- `check_backward`: gradients are torch's, for every layout;
- `check_differences`: gradients, and gradients of gradients, are those of `gradcheck`;
- `check_refusal`: what has no gradient here has none in torch either.

`public_operations` finds every function and method of the library, and `Calls` sees
which of them the table calls: an operation without an entry fails a test.

An entry's function takes the library as its first argument, because `minitorch` and
`torch` have the same names: `lambda m, x, y: m.where(x > y, x, y)`.
"""

from __future__ import annotations

import inspect
import operator
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import minitorch
from helpers import LAYOUTS, SIMULATED, make
from minitorch import Tensor, dtypes
from minitorch.bench.tiny import NAMESPACES, public_operations
from minitorch.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
)
from minitorch.grad_check import gradcheck, gradgradcheck
from minitorch.tensor_data import Shape

KINDS = {"f": (float32, float64), "i": (int64, int32, int8), "b": (bool_,)}
TORCH_DTYPES = {
    float32: torch.float32,
    float64: torch.float64,
    int64: torch.int64,
    int32: torch.int32,
    int8: torch.int8,
    bool_: torch.bool,
    float16: torch.float16,
    bfloat16: torch.bfloat16,
}


@dataclass(frozen=True)
class Operation:
    """How one operation is called, and on what.

    Attributes:
        name: its name, and in test reports the variant.
        fn: fn(library, *tensors), called with minitorch.
        shapes: for each sample, the shapes of its tensors.
        kinds: the dtypes it is defined for: f(loating), i(nteger), b(ool).
        domain: the range of floating elements.
        oracle: the same for torch, where that is called in another way.
        differentiable: whether it has gradients; `twice`: and gradients of them.
        tolerance: for float32; float64 has to keep 1e-12 of 1 + |expected|.
        layouts: in which its operands may lie in memory.
        rounds: whether it computes in float32, too coarse for differences.
        others: what a device that compiles does with all dtypes but one, as kernels
            are made from templates that operations share: "all" layouts and shapes,
            "few" shapes, or "none".
    """

    name: str
    fn: Callable[..., Any]
    shapes: Sequence[tuple[Shape, ...]]
    kinds: str = "fib"
    domain: tuple[float, float] = (-2.0, 2.0)
    oracle: Callable[..., Any] | None = None
    differentiable: bool = True
    twice: bool = True
    tolerance: float = 3e-6
    layouts: Sequence[str] = LAYOUTS
    rounds: bool = False
    others: str = "all"

    def __str__(self) -> str:
        return self.name


# ------------------------------------------------------------------------ samples


def elements(
    op: Operation, shape: Shape, dtype: DType, seed: int, layout: str
) -> np.ndarray:
    """An array for one operand of `op`."""
    rng = np.random.default_rng((seed, len(shape), *shape))
    low, high = op.domain
    if dtype is bool_:
        array = rng.integers(0, 2, shape).astype(bool)
    elif dtype.is_floating_point:
        array = rng.uniform(low, high, shape).astype(dtype.numpy)
    else:
        array = rng.integers(max(int(low), -4), 5, shape).astype(dtype.numpy)
        array[array == 0] += 0 if low <= 0 else 1
    if layout == "expanded" and shape and array.size:
        array = np.ascontiguousarray(np.broadcast_to(array[:1], shape))
    return array


def samples(
    op: Operation,
    device: str,
    dtype: DType,
    layout: str,
    grad: bool = False,
    among: slice = slice(None),
) -> Iterable[tuple[list[Tensor], list[torch.Tensor]]]:
    """For each shape of the entry: its operands as tensors of both libraries."""
    for shapes in op.shapes[among]:
        arrays = [elements(op, s, dtype, i, layout) for i, s in enumerate(shapes)]
        mine = [Tensor(make(a, device, layout)) for a in arrays]
        theirs = [as_torch(a) for a in arrays]
        if grad:
            mine = [x.requires_grad_() for x in mine]
            theirs = [x.requires_grad_() for x in theirs]
        yield mine, theirs


def as_torch(array: np.ndarray) -> torch.Tensor:
    """torch.tensor(array), also of a bfloat16 array, which torch does not know."""
    if array.dtype == bfloat16.numpy:
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.tensor(array)


def oracle(op: Operation, operands: Sequence[torch.Tensor]) -> Any:
    """What torch says."""
    return (op.oracle or op.fn)(torch, *operands)


# -------------------------------------------------------------------- comparisons


def numpy_of(x: Any) -> np.ndarray:
    """The elements of a tensor of either library, half types as float32."""
    x = x.float() if x.dtype in (torch.bfloat16, bfloat16) else x
    return np.asarray(x.detach().numpy())


def assert_same(mine: Any, theirs: Any, tolerance: float = 0.0, what: str = "") -> None:
    """Equal structure, shape, dtype, and elements up to `tolerance * (1 + |x|)`."""
    if isinstance(theirs, (tuple, list)):
        assert len(mine) == len(theirs), what
        for a, b in zip(mine, theirs):
            assert_same(a, b, tolerance, what)
        return
    if not isinstance(theirs, torch.Tensor):
        assert type(mine) is type(theirs) and mine == theirs, what
        return
    assert tuple(mine.shape) == tuple(theirs.shape), f"{what}: shape {mine.shape}"
    assert mine.dtype.name == str(theirs.dtype)[6:], f"{what}: {mine.dtype}"
    a, b = numpy_of(mine), numpy_of(theirs)
    if tolerance and mine.dtype.is_floating_point:
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=what
        )
    else:
        np.testing.assert_array_equal(a, b, err_msg=what)


def tolerance(op: Operation, dtype: DType) -> float:
    """The tolerance for results of this dtype."""
    return 1e-12 if dtype is float64 else op.tolerance


# ------------------------------------------------------------------------- checks


def some_layouts(op: Operation, dtype: DType) -> list[str]:
    """Contiguous, and two others that depend on the dtype: all dtypes have all."""
    others = [layout for layout in op.layouts if layout != "contiguous"]
    first = 2 * dtypes.ALL.index(dtype)
    chosen = {others[(first + i) % len(others)] for i in range(2)}
    return ["contiguous", *sorted(chosen)]


def compiles(device: str) -> bool:
    """Whether a kernel is made for each dtype at its first call."""
    return device not in ("simple", "toy")


def check_forward(op: Operation, device: str) -> None:
    """Every dtype, and every layout, has torch's values, shapes and dtypes.

    Where templates are compiled, one dtype has several layouts and all shapes, another
    one for the next name ("sum" and "sum_0" are of one), and others what `op.others`
    says: so each template meets each dtype, and each operation meets both, but not
    every two of them. tests/backends has templates with more dtypes.
    """
    every = [dtype for kind in op.kinds for dtype in KINDS[kind]]
    chosen = every[zlib.adler32(op.name.split("_")[0].encode()) % len(every)]
    for dtype in every:
        some = compiles(device) and op.others != "all" and dtype is not chosen
        if some and op.others == "none" and device != "mojo":  # which compiles ahead
            continue
        among = slice(0, 5, 4) if some else slice(None)
        for layout in ["contiguous"] if some else some_layouts(op, dtype):
            for mine, theirs in samples(op, device, dtype, layout, among=among):
                what = f"{op} {dtype.name} {layout} {[tuple(x.shape) for x in mine]}"
                expected = oracle(op, theirs)
                got = op.fn(minitorch, *mine)
                assert_same(got, expected, tolerance(op, dtype), what)


def check_backward(op: Operation, device: str) -> None:
    """Gradients in float64 are torch's, in every layout; in float32 nearly so.

    In the simulator, which is slow, float64 gets some layouts and float32 others.
    """
    for dtype in (float64, float32):
        every = dtype is float64 and not SIMULATED
        layouts = op.layouts if every else some_layouts(op, dtype)
        if dtype is float32 and compiles(device) and op.others != "all":
            layouts = ["contiguous"]
        for layout in layouts:
            for mine, theirs in samples(op, device, dtype, layout, grad=True):
                what = f"{op} {dtype.name} {layout} {[tuple(x.shape) for x in mine]}"
                weighted_sum(op.fn(minitorch, *mine)).backward()
                weighted_sum(oracle(op, theirs)).backward()
                for x, y in zip(mine, theirs):
                    assert (x.grad is None) == (y.grad is None), what
                    if y.grad is not None:
                        close = 1e-11 if dtype is float64 else 10 * op.tolerance
                        assert_same(x.grad, y.grad, close, f"{what} gradient")


def weighted_sum(outputs: Any) -> Any:
    """A number made from all outputs, whose gradients depend on the place."""
    total: Any = 0.0
    for number, out in enumerate(_floating(outputs)):
        count = max(out.numel(), 1)
        weights = np.cos(np.arange(out.numel()) + number).reshape(tuple(out.shape))
        lib = torch if isinstance(out, torch.Tensor) else minitorch
        weights = lib.tensor(weights, dtype=out.dtype, device=out.device)
        total = total + (out * weights).sum() * (2.0 if count > 1 else 3.0)
    return total


def _floating(outputs: Any) -> list[Any]:
    items = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    return [x for x in items if hasattr(x, "backward") and x.is_floating_point()]


def check_refusal(op: Operation, device: str) -> None:
    """Without a gradient is what torch has no gradient for, and in the same way.

    The result does not require grad, or the backward pass raises.
    """
    for mine, theirs in samples(op, device, float64, "contiguous", grad=True):
        results = _floating(op.fn(minitorch, *mine)), _floating(oracle(op, theirs))
        for ours, expected in zip(*results, strict=True):
            what = f"{op} {[tuple(x.shape) for x in mine]}"
            assert ours.requires_grad == expected.requires_grad, what
            for result in (ours, expected) if expected.requires_grad else ():
                with pytest.raises(RuntimeError):
                    result.sum().backward()


def check_differences(op: Operation, device: str) -> None:
    """gradcheck, and gradgradcheck where there are gradients of gradients."""
    for mine, _ in samples(op, device, float64, "contiguous", grad=True):
        if sum(x.numel() for x in mine) > 30 or op.rounds:
            continue

        def call(*xs: Tensor) -> Any:
            return op.fn(minitorch, *xs)

        assert gradcheck(call, mine, rtol=1e-4, atol=1e-5)
        if op.twice:
            assert gradgradcheck(call, mine, rtol=1e-4, atol=1e-5)


def each(*families: str, differentiable: bool = False) -> Any:
    """Run a test once for each operation of some families, as its argument `op`."""
    every = [op for family in families for op in OPERATIONS[family]]
    ops = [op for op in every if op.differentiable or not differentiable]
    return pytest.mark.parametrize("op", ops, ids=str)


# ------------------------------------------------------- what the library offers


class Calls:
    """Sees, as a context, which public operations are called, though not by others.

    Attributes:
        seen: their full names.
    """

    def __init__(self, operations: dict[str, Any]) -> None:
        self.seen: set[str] = set()
        self.depth = 0
        self.operations = operations

    def __enter__(self) -> Calls:
        for name, value in self.operations.items():
            self._put(name, self._watched(name, value))
        return self

    def __exit__(self, *_: object) -> None:
        for name, value in self.operations.items():
            self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        space, _, attribute = name.partition(".")
        setattr(NAMESPACES[space], attribute, value)

    def _watched(self, name: str, value: Any) -> Any:
        if isinstance(value, property):
            return property(self._watched(name, value.fget), value.fset)
        if isinstance(value, staticmethod):
            return staticmethod(self._watched(name, value.__func__))

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not self.depth:
                self.seen.add(name)
            self.depth += 1
            try:
                return value(*args, **kwargs)
            finally:
                self.depth -= 1

        return watched


# -------------------------------------------------------------------------- table

ONE: Sequence[tuple[Shape, ...]] = [((),), ((1,),), ((0,),), ((7,),), ((3, 4),)]
MORE: Sequence[tuple[Shape, ...]] = [*ONE, ((2, 0, 3),), ((2, 3, 4),)]
TWO: Sequence[tuple[Shape, ...]] = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((2, 1, 4), (3, 1)),
    ((3, 4), ()),
    ((), (5,)),
    ((), ()),
    ((0, 3), (1, 3)),
    ((1,), (0,)),
]


def method(name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """fn(library, x) that calls x.name(*args); its `as_function`, library.name."""

    def call(m: Any, x: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    if inspect.isfunction(getattr(minitorch, name, None)):
        call.as_function = lambda m, x: getattr(m, name)(x, *args, **kwargs)
    return call


def functional(name: str, **kwargs: Any) -> Callable[..., Any]:
    """fn(library, x) that calls torch.nn.functional.name(x)."""
    return lambda m, x: getattr(torch.nn.functional, name)(x, **kwargs)


def unary(name: str, kinds: str = "fib", **options: Any) -> Operation:
    """An operation on one tensor with a method of its name."""
    return Operation(name, method(name), MORE, kinds, **options)


def binary(name: str, fn: Callable, kinds: str = "fib", **options: Any) -> Operation:
    """A function of two numbers, on two tensors that broadcast."""
    return Operation(name, fn, TWO, kinds, **options)


def on(name: str, fn: Callable, *shapes: Shape, **options: Any) -> Operation:
    """An operation on one tensor that is tried on `shapes`."""
    return Operation(name, fn, [(s,) for s in shapes], **options)


def index(m: Any, x: Any, values: Any) -> Any:
    """An int64 tensor beside x."""
    return m.tensor(values, dtype=m.int64, device=x.device)


def mask(m: Any, x: Any, values: Any) -> Any:
    """A bool tensor beside x."""
    return m.tensor(np.array(values, dtype=bool), device=x.device)


DISTINCT = tuple(layout for layout in LAYOUTS if layout != "expanded")
POSITIVE = {"domain": (0.2, 3.0)}
FLAT = {"differentiable": False}

ELEMENTWISE = [
    unary("neg", "fi"),
    unary("abs", "fi"),
    unary("sign"),
    unary("floor", "fi"),
    unary("ceil", "fi"),
    unary("round", "fi"),
    unary("exp"),
    unary("expm1"),
    unary("log", **POSITIVE),
    unary("log1p", domain=(-0.8, 2.0)),
    unary("log2", **POSITIVE),
    unary("log10", **POSITIVE),
    unary("sqrt", **POSITIVE),
    unary("rsqrt", **POSITIVE),
    unary("reciprocal", **POSITIVE),
    unary("square"),
    unary("sin"),
    unary("cos"),
    unary("acos", domain=(-0.9, 0.9)),
    unary("sinh"),
    unary("cosh"),
    unary("tanh"),
    unary("erf"),
    unary("sigmoid"),
    unary("relu", "fi"),
    unary("gelu", "f", oracle=functional("gelu")),
    Operation(
        "gelu_tanh",
        method("gelu", approximate="tanh"),
        ONE,
        "f",
        oracle=functional("gelu", approximate="tanh"),
    ),
    unary("silu", "f", oracle=functional("silu")),
    unary("elu", "f", oracle=functional("elu")),
    Operation(
        "elu_alpha",
        method("elu", 0.3),
        ONE,
        "f",
        oracle=functional("elu", alpha=0.3),
    ),
    unary("leaky_relu", "f", oracle=functional("leaky_relu")),
    unary("softplus", "f", oracle=functional("softplus")),
    unary("isnan", **FLAT),
    unary("isinf", **FLAT),
    unary("isfinite", **FLAT),
    unary("logical_not", **FLAT),
    Operation("invert", lambda m, x: ~x, ONE, "b", **FLAT),
    Operation("clamp", method("clamp", -1, 1), ONE, "fi"),
    Operation("clamp_float", method("clamp", -0.5, 0.75), ONE, "fi"),
    Operation("clamp_min", method("clamp", min=0), ONE, "fi"),
    Operation("clamp_max", method("clamp", max=1.5), ONE, "fi"),
    Operation("clip", method("clip", -1, 1), ONE, "fi"),
    Operation("pow_2", lambda m, x: x**2, ONE),
    Operation("pow_2.0", lambda m, x: x**2.0, ONE),
    Operation("pow_3", lambda m, x: x**3, ONE, "fi"),
    Operation("pow_0", lambda m, x: x**0, ONE, "fi"),
    Operation("pow_half", lambda m, x: x**0.5, ONE, "fi", **POSITIVE),
    Operation("pow_minus_1.5", lambda m, x: x**-1.5, ONE, "f", **POSITIVE),
    Operation("rpow", lambda m, x: 2.5**x, ONE, "fi"),
    Operation("rpow_int", lambda m, x: 2**x, ONE, "f"),
    Operation("rdiv", lambda m, x: 2 / x, ONE, "fib", **POSITIVE),
    Operation("rsub", lambda m, x: 2 - x, ONE, "fi"),
    Operation("radd", lambda m, x: 2.5 + x, ONE),
    Operation("add_scalar", lambda m, x: x + 2, ONE),
    Operation("sub_scalar", lambda m, x: x - 2.5, ONE, "fi"),
    Operation("mul_scalar", lambda m, x: 3 * x * 0.5, ONE),
    Operation("div_scalar", lambda m, x: x / 4, ONE),
    Operation("add_true", lambda m, x: x + True, ONE),
    Operation("floordiv_scalar", lambda m, x: x // 2, ONE, "fi", **FLAT),
    Operation("mod_scalar", lambda m, x: x % 3, ONE, "fi"),
    Operation("mod_float", lambda m, x: x % -0.75, ONE, "fi"),
    Operation("rfloordiv", lambda m, x: 7 // x, ONE, "fi", **POSITIVE, **FLAT),
    Operation(
        "rmod",
        lambda m, x: 5.5 % x,
        ONE,
        "fi",
        # A number % x has no gradient there.
        oracle=lambda m, x: x.new_tensor(5.5, dtype=m.result_type(x, 5.5)) % x,
        **POSITIVE,
    ),
    Operation("lt_scalar", lambda m, x: x < 1, ONE, **FLAT),
    Operation("ge_scalar", lambda m, x: x >= 0.5, ONE, **FLAT),
    Operation("eq_scalar", lambda m, x: x == 1, ONE, **FLAT),
    binary("add", lambda m, x, y: x + y),
    binary("add_alpha", lambda m, x, y: m.add(x, y, alpha=2), "fi"),
    binary("sub", lambda m, x, y: x - y, "fi"),
    binary("sub_alpha", lambda m, x, y: m.sub(x, y, alpha=3), "fi"),
    binary("mul", lambda m, x, y: x * y),
    binary("div", lambda m, x, y: x / y, **POSITIVE),
    binary("floor_divide", lambda m, x, y: x // y, "fi", **POSITIVE, **FLAT),
    binary("remainder", lambda m, x, y: x % y, "fi", **POSITIVE),
    binary("pow", lambda m, x, y: x**y, "fi", **POSITIVE, tolerance=2e-5),
    binary("maximum", lambda m, x, y: m.maximum(x, y)),
    binary("minimum", lambda m, x, y: m.minimum(x, y)),
    binary("max_other", lambda m, x, y: x.max(y)),
    binary("lerp", lambda m, x, y: m.lerp(x, y, 0.3), "f"),
    binary("lerp_far", lambda m, x, y: m.lerp(x, y, 1.0), "f"),
    binary("lerp_tensor", lambda m, x, y: m.lerp(x, y, x * y), "f"),
    binary("addcmul", lambda m, x, y: m.addcmul(x, x, y, value=3), "fi"),
    binary("addcdiv", lambda m, x, y: m.addcdiv(x, x, y, value=0.3), "f", **POSITIVE),
    binary("where", lambda m, x, y: m.where(x > y, x, y)),
    binary("where_scalar", lambda m, x, y: m.where(x > y, x, 2.5), "f"),
    binary("where_left", lambda m, x, y: m.where(x > y, 2, y), "fi"),
    binary("clamp_tensors", lambda m, x, y: x.clamp(y - 1, y + 1), "fi"),
    binary("masked_fill", lambda m, x, y: (x + y).masked_fill(y > x, 3), "fi"),
    binary("lt", lambda m, x, y: x < y, **FLAT),
    binary("le", lambda m, x, y: x <= y, **FLAT),
    binary("gt", lambda m, x, y: x > y, **FLAT),
    binary("ge", lambda m, x, y: x >= y, **FLAT),
    binary("eq", lambda m, x, y: x == y, **FLAT),
    binary("ne", lambda m, x, y: x != y, **FLAT),
    binary("logical_and", lambda m, x, y: m.logical_and(x, y), **FLAT),
    binary("logical_or", lambda m, x, y: m.logical_or(x, y), **FLAT),
    binary("logical_xor", lambda m, x, y: x.logical_xor(y), **FLAT),
    binary("and", lambda m, x, y: x & y, "b", **FLAT),
    binary("or", lambda m, x, y: x | y, "b", **FLAT),
    binary("xor", lambda m, x, y: x ^ y, "b", **FLAT),
]

DIMS: Sequence[tuple[Shape, ...]] = [((3, 4),), ((2, 3, 4),), ((1, 5),)]
WITH_EMPTY: Sequence[tuple[Shape, ...]] = [*DIMS, ((0, 3),), ((3, 0),), ((2, 0, 2),)]


def reduction(
    name: str, args: Sequence[Any], shapes: Any, kinds: str = "fib", **options: Any
) -> list[Operation]:
    """One entry for each argument: name(dim) and name(dim, keepdim=True).

    Over the last dimension all dtypes are tried.
    """
    out = []
    for dim in args:
        for keepdim in (False, True):
            fn = method(name, dim, keepdim=keepdim)
            label = f"{name}_{dim}{'_keepdim' if keepdim else ''}".replace(" ", "")
            others = "few" if dim == -1 and not keepdim else "none"
            out.append(Operation(label, fn, shapes, kinds, others=others, **options))
    return out


ALL_DIMS = (0, -1, (0, 1), (-1, 0))
REDUCE = [
    Operation("sum", method("sum"), MORE),
    *reduction("sum", (*ALL_DIMS, ()), WITH_EMPTY),
    Operation("sum_dtype", lambda m, x: x.sum(0, dtype=m.float64), WITH_EMPTY),
    Operation("mean", method("mean"), MORE, "f"),
    *reduction("mean", ALL_DIMS, WITH_EMPTY, "f"),
    Operation("prod", method("prod"), ONE),
    *reduction("prod", (0, -1), WITH_EMPTY),
    Operation("var", method("var"), [((7,),), ((3, 4),)], "f"),
    Operation("std", method("std"), [((7,),), ((3, 4),)], "f"),
    *reduction("var", ALL_DIMS, [((3, 4),), ((2, 3, 4),)], "f"),
    *reduction("std", (0, (0, -1)), [((3, 4),), ((2, 3, 4),)], "f"),
    Operation("var_biased", method("var", 1, correction=0), DIMS, "f"),
    Operation("var_unbiased", lambda m, x: x.var(1, unbiased=False), DIMS, "f"),
    Operation("amax", method("amax"), [((),), ((7,),), ((3, 4),)]),
    *reduction("amax", ALL_DIMS, DIMS),
    *reduction("amin", ALL_DIMS, DIMS),
    Operation("max", method("max"), [((),), ((7,),), ((3, 4),)]),
    Operation("min", method("min"), [((),), ((7,),), ((3, 4),)]),
    *reduction("max", (0, -1), DIMS),
    *reduction("min", (0, -1), DIMS),
    Operation("max_0d", method("max", 0), [((),)]),
    Operation("median", method("median"), [((),), ((7,),), ((3, 4),)], "fi"),
    *reduction("median", (0, -1), DIMS, "f", layouts=DISTINCT),
    Operation("median_values", lambda m, x: x.median(-1)[0], DIMS, "i"),
    Operation("median_0d", method("median", 0), [((),)], "fi"),
    Operation("argmax", method("argmax"), [((),), ((7,),), ((3, 4),)], "fi", **FLAT),
    Operation("argmin", method("argmin"), [((),), ((7,),), ((3, 4),)], "fi", **FLAT),
    *reduction("argmax", (None, 0, -1), DIMS, "fi", **FLAT),
    *reduction("argmin", (None, 0, -1), DIMS, "fi", **FLAT),
    Operation("any", method("any"), MORE, **FLAT),
    Operation("all", method("all"), MORE, **FLAT),
    *reduction("any", ALL_DIMS, WITH_EMPTY, **FLAT),
    *reduction("all", ALL_DIMS, WITH_EMPTY, **FLAT),
    *reduction("logsumexp", ALL_DIMS, DIMS, "fi"),
    Operation("cumsum_0", method("cumsum", 0), [((),), *WITH_EMPTY]),
    Operation("cumsum_1", method("cumsum", -1), WITH_EMPTY),
    Operation("cumprod_0", method("cumprod", 0), [((),), ((9, 2),), *WITH_EMPTY]),
    Operation("cumprod_1", lambda m, x: x.cumprod(-1, dtype=m.float64), WITH_EMPTY),
    Operation("norm", method("norm"), [((7,),), ((3, 4),)], "f"),
    Operation("norm_1", method("norm", 1, 0), DIMS, "f"),
    Operation("norm_inf", method("norm", float("inf"), -1, keepdim=True), DIMS, "f"),
    *[
        Operation(f"softmax_{d}", method("softmax", d), [*WITH_EMPTY, ((),)], "f")
        for d in (0, -1)
    ],
    *[
        Operation(f"log_softmax_{d}", method("log_softmax", d), WITH_EMPTY, "f")
        for d in (0, -1)
    ],
]

MATMUL_SHAPES: Sequence[tuple[Shape, ...]] = [
    ((4,), (4,)),
    ((4,), (4, 3)),
    ((2, 4), (4,)),
    ((2, 4), (4, 3)),
    ((1, 1), (1, 1)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((2, 3, 4), (4, 2)),
    ((3, 4), (2, 4, 2)),
    ((2, 3, 4), (2, 4, 2)),
    ((2, 1, 2, 3), (3, 3, 2)),
    ((1, 2, 3), (2, 3, 2)),
    ((0, 4), (4, 3)),
    ((2, 0), (0, 3)),
    ((0,), (0,)),
    ((2, 0, 3), (3, 2)),
    ((0, 2, 3), (3, 2)),
]


def einsum(equation: str, m: Any, *operands: Any) -> Any:
    """One dtype for all: where PyTorch adds up int32 before a product, it is int64."""
    return m.einsum(equation, *operands).to(operands[0].dtype)


MATMUL = [
    Operation("matmul", lambda m, x, y: x @ y, MATMUL_SHAPES, "fi", tolerance=1e-5),
    Operation("mm", lambda m, x, y: m.mm(x, y), [((2, 4), (4, 3))], "fi"),
    Operation("bmm", lambda m, x, y: m.bmm(x, y), [((2, 3, 4), (2, 4, 2))], "fi"),
    *[
        Operation(
            f"addmm_{beta}_{alpha}",
            lambda m, i, x, y, b=beta, a=alpha: m.addmm(i, x, y, beta=b, alpha=a),
            [((2, 3), (2, 4), (4, 3)), ((3,), (2, 4), (4, 3)), ((), (2, 0), (0, 3))],
            "fi",
            tolerance=1e-5,
        )
        for beta, alpha in ((1, 1), (2, -3), (-1, 0))
    ],
    Operation("dot", lambda m, x, y: m.dot(x, y), [((4,), (4,))], "fi"),
    Operation("mv", lambda m, x, y: m.mv(x, y), [((2, 4), (4,))], "fi"),
    Operation("outer", lambda m, x, y: m.outer(x, y), [((2,), (4,)), ((0,), (1,))]),
    Operation("mT", lambda m, x, y: x @ y.mT, [((2, 3, 4), (2, 2, 4))], "fi"),
    *[
        Operation(f"einsum_{e}", partial(einsum, e), [shapes], "f", tolerance=1e-5)
        for e, *shapes in (
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("ij,jk", (2, 0), (0, 4)),
            ("bhqd,bhkd->bhqk", (2, 2, 3, 2), (2, 2, 4, 2)),
            ("...ij,...jk->...ik", (2, 1, 3, 2), (3, 2, 2)),
            ("i,j->ij", (3,), (4,)),
            ("ij,ij->", (2, 3), (2, 3)),
            ("ij,kj,k->i", (2, 3), (4, 3), (4,)),
            ("b...,b...->...", (2, 3), (2, 1)),
            ("ba,ca", (2, 3), (4, 3)),
            ("iji->j", (3, 2, 3)),
            ("...ii->...i", (2, 3, 3)),
            ("aabb->ab", (2, 2, 3, 3)),
            ("ij->ji", (2, 3)),
        )
    ],
]

MOVEMENT = [
    on(
        "view",
        method("view", 4, 3),
        (3, 4),
        (12,),
        (1, 12),
        layouts=("contiguous", "offset"),
    ),
    on("reshape", lambda m, x: x.reshape(4, 3), (3, 4), (12,), (2, 1, 6)),
    on("reshape_rest", method("reshape", -1), (3, 4), (), (2, 0)),
    on("reshape_tuple", method("reshape", (2, -1)), (4, 3), (2, 2, 3)),
    on("reshape_same", method("reshape", (3, 4)), (3, 4)),
    on("permute", lambda m, x: x.permute(2, 0, 1), (2, 3, 4), (1, 0, 2)),
    on("permute_tuple", method("permute", (-1, 0, 1)), (2, 3, 4)),
    on("transpose", method("transpose", 0, -1), (2, 3), (2, 3, 4), (5,)),
    on("swapaxes", method("swapaxes", 0, -1), (2, 3, 4)),
    on("T", lambda m, x: x.T, (2, 3)),
    on("t", method("t"), (2, 3), (4,), ()),
    on("mT", lambda m, x: x.mT, (2, 3), (4, 2, 3)),
    on("movedim", method("movedim", 0, -1), (2, 3, 4)),
    on("expand", method("expand", 3, 4), (1, 4), (4,), (3, 1), (1,), ()),
    on("expand_keep", method("expand", 2, -1, 4), (3, 1), (1, 3, 4)),
    on("expand_empty", method("expand", 0, 3), (1, 3)),
    on("broadcast_to", method("broadcast_to", (2, 3)), (3,), (2, 1)),
    on("squeeze", method("squeeze"), (1, 3, 1), (2, 3), (), (1, 1)),
    on("squeeze_dim", method("squeeze", 1), (2, 1, 3), (2, 3)),
    on("squeeze_dims", method("squeeze", (0, -1)), (1, 3, 1), (1, 3)),
    on("unsqueeze_0", method("unsqueeze", 0), (2, 3), (), (0,)),
    on("unsqueeze_last", method("unsqueeze", -1), (2, 3), ()),
    on("flatten", method("flatten"), (2, 3, 4), (), (5,), (2, 0)),
    on("flatten_dims", method("flatten", 1, 2), (2, 3, 4), (2, 3, 1, 2)),
    on("unflatten", method("unflatten", 1, (2, -1)), (2, 6), (3, 4, 2)),
    on("unflatten_last", method("unflatten", -1, [2, 2]), (4,), (3, 4)),
    on("ravel", method("ravel"), (2, 3), (), (0, 2)),
    on("contiguous", method("contiguous"), (2, 3), (), (0, 2)),
    on("clone", method("clone"), (2, 3), (), (0, 2)),
    on("roll", method("roll", 2), (5,), (2, 3), (0, 2)),
    on("roll_dims", method("roll", (1, -4), (0, -1)), (2, 3), (2, 3, 4)),
    on("flip", method("flip", 0), (5,), (2, 3), (0, 2)),
    on("flip_dims", method("flip", (0, -1)), (2, 3), (2, 3, 4)),
    on("narrow", method("narrow", 1, 1, 2), (2, 4), (2, 3, 2)),
    on("select", method("select", 1, -1), (2, 4), (2, 3, 2)),
    on("split", method("split", 2, 1), (2, 5), (2, 4), (3, 1), (2, 0)),
    on("split_sizes", method("split", [1, 3, 0]), (4, 2)),
    on("chunk", method("chunk", 3, 0), (7, 2), (6,), (2,), (0, 3)),
    on("unbind", method("unbind", 1), (2, 3), (2, 3, 2)),
    on("repeat", method("repeat", 2, 3), (3,), (2, 2), (1, 0)),
    on("repeat_interleave", method("repeat_interleave", 3), (), (3,), (2, 2), (1, 0)),
    on("repeat_interleave_1", method("repeat_interleave", 2, -1), (3,), (2, 2), (1, 0)),
    on("repeat_interleave_0", method("repeat_interleave", 0, 0), (3,), (2, 2)),
    on(
        "repeat_interleave_each",
        lambda m, x: m.repeat_interleave(x, m.tensor([2, 0, 1]), 0, output_size=3),
        *((3,), (3, 2), (3, 0)),
    ),
    on("repeat_3", method("repeat", 2, 1, 2), (2, 3)),
    Operation(
        "pad",
        lambda m, x: x.pad((1, 2)),
        [((3,),), ((2, 3),), ((2, 0),)],
        oracle=functional("pad", pad=(1, 2)),
    ),
    Operation(
        "pad_value",
        lambda m, x: x.pad((1, 0, 2, 1), 3),
        [((2, 3),), ((2, 2, 3),)],
        "fi",
        oracle=functional("pad", pad=(1, 0, 2, 1), value=3),
    ),
    Operation(
        "pad_cut",
        lambda m, x: x.pad((-1, 2, 1, -1)),
        [((3, 3),)],
        oracle=functional("pad", pad=(-1, 2, 1, -1)),
    ),
    on("diag", method("diag"), (3,), (0,), (3, 4), (4, 3), (1, 1), (0, 3)),
    on("diag_1", method("diag", 1), (3,), (0,), (3, 4), (4, 3), (4, 1)),
    on("diag_minus", method("diag", -2), (3,), (0,), (3, 4), (4, 3), (2, 1)),
    on("trace", method("trace"), (3, 3), (3, 4), (3, 2), (0, 2), kinds="fi"),
    on("tril", method("tril"), (3, 4), (4, 3), (2, 3, 3), (0, 3)),
    on("triu", method("triu", 1), (3, 4), (4, 3), (2, 3, 3)),
    on("tril_minus", method("tril", -1), (3, 4), (4, 3)),
    Operation(
        "cat",
        lambda m, x, y: m.cat([x, y, x]),
        [((2, 3), (1, 3)), ((2,), (3,)), ((0, 2), (2, 2))],
    ),
    Operation("cat_1", lambda m, x, y: m.cat((x, y), -1), [((2, 3), (2, 2))]),
    Operation("concat", lambda m, x, y: m.concat((x, y), axis=1), [((2, 3),) * 2]),
    Operation(
        "hstack",
        lambda m, x, y: m.hstack([x, y]),
        [((2, 3), (2, 1)), ((3,), ()), ((2, 1, 2), (2, 2, 2))],
    ),
    Operation(
        "vstack",
        lambda m, x, y: m.vstack([x, y]),
        [((3,), (3,)), ((3,), (2, 3)), ((), ()), ((1, 2, 2), (2, 2, 2))],
    ),
    Operation("stack", lambda m, x, y: m.stack([x, y]), [((2, 3),) * 2, ((),) * 2]),
    Operation("stack_1", lambda m, x, y: m.stack([x, y], dim=-1), [((2, 3),) * 2]),
    on("to_double", lambda m, x: x.to(m.float64), (2, 3), (), (0,)),
    on("to_float", lambda m, x: x.float(), (2, 3), (), rounds=True),
    on("to_long", lambda m, x: x.long(), (2, 3), differentiable=False),
    on("to_int", lambda m, x: x.int(), (2, 3), differentiable=False),
    on("to_bool", lambda m, x: x.bool(), (2, 3), differentiable=False),
    on("to_half", lambda m, x: x.half(), (2, 3), (), rounds=True, tolerance=1e-3),
    on("to_bfloat16", lambda m, x: x.bfloat16(), (2, 3), rounds=True, tolerance=8e-3),
    Operation("type_as", lambda m, x, y: x.type_as(y), [((2, 3), (2,))]),
]

INDEX = [
    on("int", lambda m, x: x[1], (3, 4), (3,)),
    on("int_last", lambda m, x: x[-1, 2], (3, 4), (2, 3, 2)),
    on("all_ints", lambda m, x: x[1, 2], (3, 4)),
    on("slice", lambda m, x: x[1:3], (4, 2), (5,), (2, 3)),
    on("slice_step", lambda m, x: x[::2, 1::3], (5, 7)),
    on("slice_negative", lambda m, x: x[-3:-1, :-1], (4, 3)),
    on("slice_empty", lambda m, x: x[3:1], (4, 2)),
    on("slice_beyond", lambda m, x: x[2:100], (4, 2)),
    on("none", lambda m, x: x[None, :, None], (3, 4), (3,)),
    on("ellipsis", lambda m, x: x[..., 1], (3, 4), (2,), (2, 3, 4)),
    on("ellipsis_mid", lambda m, x: x[0, ..., None, 1], (3, 4), (2, 3, 4)),
    on("empty_tuple", lambda m, x: x[()], (2, 3), ()),
    on("ellipsis_only", lambda m, x: x[...], (2, 3), ()),
    on("slice_int_none", lambda m, x: x[1:, None, 0, ::2], (3, 4, 5)),
    on("list", lambda m, x: x[[2, 0, 2]], (3, 4), (3,)),
    on("tensor", lambda m, x: x[index(m, x, [2, 0, -1])], (3, 4), (3,)),
    on("tensor_2d", lambda m, x: x[index(m, x, [[0, 1], [2, 2]])], (3, 4)),
    on("tensor_0d", lambda m, x: x[index(m, x, 1)], (3, 4)),
    on("tensor_empty", lambda m, x: x[index(m, x, [])], (3, 4), (0, 4)),
    on(
        "tensors",
        lambda m, x: x[index(m, x, [0, 2]), index(m, x, [1, 0])],
        (3, 4),
        (3, 2, 2),
    ),
    on(
        "tensors_broadcast",
        lambda m, x: x[index(m, x, [[0], [2]]), index(m, x, [1, 0, 3])],
        (3, 4),
    ),
    on("slice_tensor", lambda m, x: x[:, index(m, x, [1, 0, 1])], (3, 4), (2, 2, 3)),
    on("step_tensor", lambda m, x: x[::2, index(m, x, [1, 0])], (3, 4)),
    on("tensor_slice", lambda m, x: x[index(m, x, [1, 0]), 1:], (3, 4)),
    on("int_tensor", lambda m, x: x[1, index(m, x, [1, 0])], (3, 4), (2, 2, 3)),
    on("tensor_int", lambda m, x: x[index(m, x, [1, 0]), 1], (3, 4), (2, 2, 3)),
    on(
        "apart",
        lambda m, x: x[index(m, x, [1, 0]), :, index(m, x, [0, 1])],
        (2, 3, 2),
        (2, 3, 2, 2),
    ),
    on("int_apart", lambda m, x: x[0, :, index(m, x, [0, 1])], (2, 3, 2)),
    on("none_tensor", lambda m, x: x[None, index(m, x, [1, 0])], (3, 4)),
    on("tensor_none", lambda m, x: x[index(m, x, [1, 0]), None], (3, 4)),
    on("ellipsis_tensor", lambda m, x: x[..., index(m, x, [1, 0])], (3, 4), (2, 3, 2)),
    on("mask", lambda m, x: x[mask(m, x, [1, 0, 1])], (3, 4), (3,)),
    on("mask_all", lambda m, x: x[x == x], (3, 4), (0, 2), ()),
    on("mask_none", lambda m, x: x[mask(m, x, [0, 0, 0])], (3, 4)),
    on("mask_2d", lambda m, x: x[mask(m, x, [[1, 0], [0, 1], [1, 1]])], (3, 2, 2)),
    on("mask_second", lambda m, x: x[:, mask(m, x, [1, 0, 1])], (2, 3), (2, 3, 2)),
    on(
        "mask_tensor",
        lambda m, x: x[mask(m, x, [1, 0, 1]), index(m, x, [1, 0])],
        (3, 4),
    ),
    on("mask_int", lambda m, x: x[mask(m, x, [1, 0, 1]), 1], (3, 4)),
    on("mask_slice", lambda m, x: x[mask(m, x, [1, 0, 1]), ::2], (3, 4)),
    on("masked_select", lambda m, x: x.masked_select(x == x), (3, 4), (5,)),
    on(
        "gather_0",
        lambda m, x: x.gather(0, index(m, x, [[0, 2, 1], [2, 2, 0]])),
        (3, 4),
        (3, 3),
    ),
    on(
        "gather_1",
        lambda m, x: m.gather(x, -1, index(m, x, [[0, 2, 1, 1], [2, 2, 0, 3]])),
        (2, 4),
        (3, 4),
    ),
    on("gather_vector", lambda m, x: x.gather(0, index(m, x, [1, 1, 0, 2])), (3,)),
    on("gather_empty", lambda m, x: x.gather(0, index(m, x, [[]])), (3, 4)),
    on("index_select", lambda m, x: x.index_select(1, index(m, x, [2, 0, 2])), (2, 3)),
    on("index_select_0", lambda m, x: m.index_select(x, 0, index(m, x, [])), (2, 3)),
    Operation(
        "scatter_add",
        lambda m, x, y: x.scatter_add(0, index(m, x, [[0, 2, 0], [2, 2, 1]]), y),
        [((3, 3), (2, 3)), ((4, 3), (2, 3))],
        "fi",
    ),
    Operation(
        "scatter_add_larger",
        lambda m, x, y: x.scatter_add(0, index(m, x, [[0, 2, 0], [2, 2, 1]]), y),
        [((3, 4), (2, 4)), ((4, 3), (3, 4))],
        "fi",
        # torch takes a larger source, but then its own gradient has another shape.
        oracle=lambda m, x, y: x.scatter_add(
            0, index(m, x, [[0, 2, 0], [2, 2, 1]]), y[:2, :3]
        ),
    ),
    Operation(
        "scatter_add_1",
        lambda m, x, y: m.scatter_add(x, 1, index(m, x, [[0, 2, 0]]), y),
        [((2, 3), (1, 3))],
        "fi",
    ),
    Operation(
        "scatter",
        lambda m, x, y: x.scatter(-1, index(m, x, [[2, 0], [1, 3]]), y),
        [((2, 4), (2, 2)), ((3, 4), (3, 5))],
        "fi",
        oracle=lambda m, x, y: x.scatter(-1, index(m, x, [[2, 0], [1, 3]]), y[:2, :2]),
    ),
    on("scatter_3", lambda m, x: m.scatter(x, 0, index(m, x, [[1, 0]]), 3), (2, 4)),
    on("sort", method("sort"), (3, 4), (5,), (), (0,), kinds="f"),
    on(
        "sort_descending",
        method("sort", 0, descending=True),
        (3, 4),
        (5, 2),
        kinds="fib",
        oracle=lambda m, x: torch.sort(x, dim=0, descending=True, stable=True),
    ),
    on("argsort", method("argsort", 0), (5, 3), kinds="f", differentiable=False),
    on("topk", method("topk", 2), (3, 4), (5,), kinds="f", layouts=DISTINCT),
    on("topk_0", method("topk", 0), (3, 4), kinds="f"),
    on(
        "topk_smallest",
        method("topk", 3, 0, largest=False),
        (4, 3),
        kinds="f",
        layouts=DISTINCT,
    ),
    on("topk_ints", lambda m, x: x.topk(3, -1, True, True)[0], (4, 5), kinds="i"),
    *[
        on(name, lambda m, x, fn=fn: m.stack(fn(m, x)), (3, 4), (0, 2), (), **FLAT)
        for name, fn in (
            ("nonzero_tuple", lambda m, x: x.nonzero(as_tuple=True)),
            ("where_alone", lambda m, x: m.where(x > 0)),
        )
    ],
    on("bincount", method("bincount"), (5,), (0,), kinds="i", domain=(0, 5), **FLAT),
    on("nonzero", method("nonzero"), (3, 4), (5,), (0, 2), differentiable=False),
    on(
        "unique",
        lambda m, x: x.detach().unique(),
        *((3, 4), (0, 2), ()),
        differentiable=False,
    ),
]

# ------------------------------------------- the same operations by other names


def function(name: str, space: str = "") -> Callable[..., Any]:
    """fn(library, *tensors) that calls library.name, or that of `space` in it."""
    path = f"{space}.{name}".lstrip(".")
    return lambda m, *xs: operator.attrgetter(path)(m)(*xs)


def method_of_two(name: str) -> Callable[..., Any]:
    """fn(library, x, y) that calls x.name(y)."""
    return lambda m, x, y: getattr(x, name)(y)


PAIR = [((3, 4), (4,))]
VECTORS = [((4,), (4,))]
EQUAL = [((3, 4), (3, 4))]
COMPARE = "lt le gt ge eq ne logical_and logical_or logical_xor isclose".split()
FORMS = [
    *[
        Operation(f"{name}_function", function(name), PAIR, "f", **POSITIVE)
        for name in "add sub mul div pow remainder maximum minimum".split()
    ],
    *[
        Operation(f"{name}_method", method_of_two(name), PAIR, "f", **POSITIVE)
        for name in "add sub mul div pow remainder maximum minimum".split()
        if hasattr(Tensor, name)
    ],
    *[Operation(f"{n}_function", function(n), EQUAL, "f", **FLAT) for n in COMPARE],
    *[Operation(f"{n}_method", method_of_two(n), EQUAL, "f", **FLAT) for n in COMPARE],
    *[
        Operation(f"{form}_{name}", by(name), EQUAL, "f", **FLAT)
        for form, by in (("function", function), ("method", method_of_two))
        for name in ("equal", "allclose")
    ],
    Operation("floor_divide_function", function("floor_divide"), PAIR, "f", **FLAT),
    *[
        Operation(f"{form}_{name}", by(name), shapes, "f")
        for form, by in (("function", function), ("method", method_of_two))
        for name, shapes in (
            ("matmul", [((2, 3), (3, 4))]),
            ("mm", [((2, 3), (3, 4))]),
            ("bmm", [((2, 2, 3), (2, 3, 4))]),
            ("mv", [((3, 4), (4,))]),
            ("dot", VECTORS),
            ("outer", VECTORS),
        )
    ],
    Operation("minus", lambda m, x: -x, ONE, "f"),
    Operation("absolute", lambda m, x: abs(x), ONE, "f"),
    Operation("iterate", lambda m, x: list(x), [((3, 4),)], "f"),
    Operation("where_method", lambda m, x, y: x.where(x > y, y), PAIR, "f"),
    Operation("masked_fill_function", lambda m, x: m.masked_fill(x, x > 0, 3), ONE),
    Operation(
        "masked_fill_tensor", lambda m, x, y: x.masked_fill(x > 0, y), [((3,), ())]
    ),
    Operation("masked_select_function", lambda m, x: m.masked_select(x, x > 0), ONE),
    Operation(
        "masked_select_broadcast",
        lambda m, x: x.masked_select(mask(m, x, [[True], [False], [True]])),
        [((3, 4),), ((4,),), ((2, 1, 4),), ((),)],
    ),
    *[
        Operation(name, method_of_two(name), [((3, 4), (3, 4))], "f")
        for name in ("view_as", "reshape_as", "expand_as")
    ],
    Operation("double", method("double"), ONE),
    Operation("type", lambda m, x: x.type(m.float64), ONE),
    Operation("cpu", lambda m, x: x.cpu(), ONE, "f"),
    Operation("detach", method("detach"), ONE, **FLAT),
    Operation("detach_", lambda m, x: x.clone().detach_(), ONE, **FLAT),
    Operation("data", lambda m, x: x.data, ONE, **FLAT),
    Operation(
        "cat_static",
        lambda m, x, y: Tensor.cat([x, y]),
        EQUAL,
        oracle=lambda m, x, y: torch.cat([x, y]),
    ),
    Operation(
        "stack_static",
        lambda m, x, y: Tensor.stack([x, y]),
        EQUAL,
        oracle=lambda m, x, y: torch.stack([x, y]),
    ),
]


def in_place(
    name: str, fn: Callable[..., Any], kinds: str = "f", **options: Any
) -> Any:
    """fn(copy of x, y) changes the copy: one in rows, and one in columns."""

    def changed(m: Any, x: Any, y: Any) -> Any:
        rows, columns = x.clone(), x.transpose(0, -1).clone().contiguous()
        columns = columns.transpose(0, -1)
        for copy in (rows, columns):
            fn(copy, y)
        return m.stack([rows, columns])

    return Operation(name, changed, PAIR, kinds, **options)


def replaced(x: Any, y: Any) -> Any:
    """x, in whose rows 1 and 0 are those of two copies of y, in place."""
    library = torch if isinstance(x, torch.Tensor) else minitorch
    rows = y.expand(x.shape).reshape(x.shape)[:2]
    return x.index_copy_(0, index(library, x, [1, 0]), rows)


def placed(name: str, x: Any, y: Any) -> Any:
    """Copies of y put into columns of x, or added to them, in place."""
    library = torch if isinstance(x, torch.Tensor) else minitorch
    columns, rows = index(library, x, [2, 0, 2, 1]), y.expand(x.shape).reshape(x.shape)
    if name == "scatter_":  # which may use a column once
        columns, rows = columns[:2], rows[:, :2]
    columns = columns if name == "index_add_" else columns.expand(rows.shape)
    return getattr(x, name)(1, columns, rows)


UNARY_IN_PLACE = """abs_ neg_ sign_ floor_ ceil_ round_ exp_ expm1_ log_ log1p_ sqrt_
    rsqrt_ reciprocal_ sin_ cos_ tanh_ erf_ sigmoid_ relu_ square_""".split()
IN_PLACE = [
    *[
        in_place(name, lambda x, y, name=name: getattr(x, name)(y))
        for name in ("add_", "sub_", "mul_", "copy_")
    ],
    in_place("div_", lambda x, y: x.div_(y), **POSITIVE),
    in_place("lerp_", lambda x, y: x.lerp_(y, 0.3)),
    in_place("lerp_tensor_", lambda x, y: x.lerp_(y, y * y)),
    in_place("addcmul_", lambda x, y: x.addcmul_(y, 2 * y, value=3)),
    in_place("addcdiv_", lambda x, y: x.addcdiv_(2 * y, y, value=-0.3), **POSITIVE),
    *[
        in_place(name, lambda x, y, name=name: getattr(x, name)(), **POSITIVE)
        for name in UNARY_IN_PLACE
    ],
    *[
        in_place(name, lambda x, y, name=name: getattr(x, name)(y), **POSITIVE)
        for name in ("pow_", "remainder_")
    ],
    in_place("floor_divide_", lambda x, y: x.floor_divide_(y), **POSITIVE, **FLAT),
    in_place("clip_", lambda x, y: x.clip_(-0.5, 1)),
    *[
        in_place(name, getattr(operator, name))
        for name in ("iadd", "isub", "imul", "imod", "ipow", "itruediv")
    ],
    in_place("ifloordiv", operator.ifloordiv, **FLAT),
    *[in_place(n, getattr(operator, n), "b", **FLAT) for n in ("iand", "ior", "ixor")],
    in_place("setitem", lambda x, y: operator.setitem(x, 1, y)),
    in_place("index_copy_", lambda x, y: replaced(x, y)),
    *[
        in_place(name, lambda x, y, name=name: placed(name, x, y))
        for name in ("index_add_", "scatter_add_", "scatter_")
    ],
    in_place("fill_", lambda x, y: x.fill_(y.sum())),
    in_place("zero_", lambda x, y: x.zero_()),
    in_place("clamp_", lambda x, y: x.clamp_(-0.5, 1)),
    in_place("masked_fill_", lambda x, y: x.masked_fill_(x > 0, 2.5)),
    in_place("uniform_", lambda x, y: x.uniform_().mul_(0)),
    in_place("normal_", lambda x, y: x.normal_().mul_(0)),
    in_place("bernoulli_", lambda x, y: x.bernoulli_(0.5).mul_(0)),
]


def net(name: str, *shapes: Shape, call: Any = None, **options: Any) -> Operation:
    """A function of nn.functional on tensors, or `call(functional, *tensors)`."""
    fn = call or (lambda f, *xs: getattr(f, name)(*xs))
    given = options.pop("oracle", None)
    return Operation(
        name,
        lambda m, *xs: fn(m.nn.functional, *xs),
        [shapes],
        "f",
        tolerance=2e-5,
        layouts=("contiguous", "permuted"),
        oracle=given and (lambda m, *xs: given(torch.nn.functional, *xs)),
        **options,
    )


def dropped(f: Any, x: Any) -> Any:
    """Dropout with the same random numbers each time."""
    generator = minitorch.Generator(3) if hasattr(minitorch, "Generator") else None
    return f.dropout(x, 0.5, generator=generator)


def dropped_by_torch(f: Any, x: Any) -> Any:
    """What `dropped` keeps of ones, times x."""
    kept = dropped(minitorch.nn.functional, minitorch.ones(tuple(x.shape)))
    return x * torch.tensor(kept.numpy()).to(x.dtype)


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Points of the plane, turned as complex numbers are by a product (torch)."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def classes(x: Any) -> Any:
    """The numbers of three classes, in the library of x."""
    return index(torch if isinstance(x, torch.Tensor) else minitorch, x, [0, 2, 1])


def bytes_of(x: Any) -> Any:
    """An int8 weight [2, 4] and its scales, in the library of x."""
    library = torch if isinstance(x, torch.Tensor) else minitorch
    values, scale = [[3, -127, 0, 5], [127, 1, -9, 64]], [0.01, 0.02]
    return (
        library.tensor(values, dtype=library.int8, device=x.device),
        library.tensor(scale, dtype=x.dtype, device=x.device),
    )


def through_bytes(f: Any, x: Any, bias: Any) -> Any:
    """The same layer with floats (torch)."""
    weight, scale = bytes_of(x)
    return f.linear(x, weight.to(x.dtype) * scale[:, None], bias)


def fours_of(x: Any) -> Any:
    """A weight [2, 2, 16] of four bits, its scales, and the floats it stands for."""
    library = torch if isinstance(x, torch.Tensor) else minitorch
    numbers = np.arange(2 * 64).reshape(2, 2, 2, 16) % 15 - 7
    packed = (16 * numbers[:, :, 1] + numbers[:, :, 0] + 8).tolist()
    scale = np.array([[0.01, 0.02], [0.03, 0.01]])
    floats = (numbers * scale[:, :, None, None]).reshape(2, 64).tolist()
    return (
        library.tensor(packed, dtype=library.int8, device=x.device),
        library.tensor(scale.tolist(), dtype=x.dtype, device=x.device),
        library.tensor(floats, dtype=x.dtype, device=x.device),
    )


IMAGE, ROWS = (2, 2, 4, 4), (3, 4)
SAME = (ROWS, ROWS)
FUNCTIONAL = [
    *[
        net(name, ROWS)
        for name in (
            "relu leaky_relu elu gelu silu sigmoid tanh softplus logsigmoid".split()
        )
    ],
    net("linear", ROWS, (2, 4), (2,)),
    net(
        "quantized_linear",
        ROWS,
        (2,),
        call=lambda f, x, b: f.quantized_linear(x, *bytes_of(x), b),
        oracle=through_bytes,
    ),
    net(
        "quantized_linear_of_four_bits",
        (3, 64),
        (2,),
        call=lambda f, x, b: f.quantized_linear(x, *fours_of(x)[:2], b),
        oracle=lambda f, x, b: f.linear(x, fours_of(x)[2], b),
    ),
    net(
        "bias_activation",
        ROWS,
        (4,),
        call=lambda f, x, b: f.bias_activation(x, b, "gelu"),
        oracle=lambda f, x, b: f.gelu(x + b),
    ),
    net(
        "scaled_dot_product_attention",
        *((2, 3, 2), (2, 4, 2), (2, 4, 3)),
        call=lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v),
    ),
    net(
        "scaled_dot_product_attention_causal",
        *((1, 2, 3, 2), (1, 1, 3, 2), (1, 1, 3, 2)),
        call=lambda f, q, k, v: f.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=0.5, enable_gqa=True
        ),
    ),
    net("rms_norm", ROWS, (4,), call=lambda f, x, w: f.rms_norm(x, (4,), w)),
    net(
        "rotary",
        *((2, 3, 4), (3, 2), (3, 2)),
        call=lambda f, x, c, s: f.rotary(x, c.detach(), s.detach()),
        oracle=lambda f, x, c, s: turned(x, c.detach(), s.detach()),
    ),
    net("embedding", ROWS, call=lambda f, w: f.embedding(classes(w), w)),
    net("dropout", ROWS, call=dropped, oracle=dropped_by_torch),
    # Which channels are dropped, tests/test_nn_layers.py looks at.
    net("dropout2d", (2, 3, 4, 5), call=lambda f, x: f.dropout2d(x, 0.0)),
    net(
        "layer_norm",
        ROWS,
        (4,),
        (4,),
        call=lambda f, x, w, b: f.layer_norm(x, (4,), w, b),
    ),
    net(
        "group_norm",
        *((2, 4, 3), (4,), (4,)),
        call=lambda f, x, w, b: f.group_norm(x, 2, w, b),
        twice=False,
    ),
    net(
        "dropout_residual_layer_norm",
        ROWS,
        ROWS,
        (4,),
        (4,),
        call=lambda f, x, r, w, b: f.dropout_residual_layer_norm(
            x, r, (4,), w, b, training=False
        ),
        oracle=lambda f, x, r, w, b: f.layer_norm(x + r, (4,), w, b),
    ),
    net(
        "batch_norm",
        ROWS,
        (4,),
        (4,),
        call=lambda f, x, w, b: f.batch_norm(x, None, None, w, b, True),
    ),
    net("flatten", IMAGE, oracle=lambda f, x: torch.flatten(x)),
    net("max_pool2d", IMAGE, call=lambda f, x: f.max_pool2d(x, 2)),
    net("max_pool1d", (2, 2, 6), call=lambda f, x: f.max_pool1d(x, 2)),
    net("avg_pool2d", IMAGE, call=lambda f, x: f.avg_pool2d(x, 2)),
    net("adaptive_avg_pool2d", IMAGE, call=lambda f, x: f.adaptive_avg_pool2d(x, 2)),
    net("conv1d", (2, 2, 5), (3, 2, 3)),
    net("conv2d", IMAGE, (3, 2, 3, 3)),
    net("conv_transpose1d", (2, 2, 5), (2, 3, 3)),
    net("conv_transpose2d", IMAGE, (2, 3, 3, 3)),
    *[
        net(f"interpolate_{mode}", IMAGE, call=call)
        for mode, call in (
            ("nearest", lambda f, x: f.interpolate(x, scale_factor=2)),
            ("size", lambda f, x: f.interpolate(x, (3, 5))),
            ("bilinear", lambda f, x: f.interpolate(x, (3, 6), mode="bilinear")),
        )
    ],
    net("softmax", ROWS, call=lambda f, x: f.softmax(x, 1)),
    net("log_softmax", ROWS, call=lambda f, x: f.log_softmax(x, 1)),
    net("one_hot", ROWS, call=lambda f, x: f.one_hot(classes(x)), **FLAT),
    net("pad", ROWS, call=lambda f, x: f.pad(x, (1, 2))),
    net("normalize", ROWS),
    net("cosine_similarity", *SAME),
    *[
        net(name, *SAME)
        for name in "mse_loss l1_loss smooth_l1_loss huber_loss".split()
    ],
    net("binary_cross_entropy", *SAME, domain=(0.1, 0.9)),
    net("binary_cross_entropy_with_logits", *SAME),
    net(
        "kl_div",
        *SAME,
        call=lambda f, x, y: f.kl_div(x, y, reduction="sum"),
        domain=(0.1, 0.9),
    ),
    net("nll_loss", ROWS, call=lambda f, x: f.nll_loss(x, classes(x))),
    net("cross_entropy", ROWS, call=lambda f, x: f.cross_entropy(x, classes(x))),
    net(
        "linear_cross_entropy",
        *(ROWS, (5, 4)),
        call=lambda f, x, w: f.linear_cross_entropy(
            x, w, classes(x), options=minitorch.nn.LinearCrossEntropyOptions(2)
        ),
        oracle=lambda f, x, w: f.cross_entropy(f.linear(x, w), classes(x)),
    ),
]

# What no gradient goes through, by reason.
WITHOUT_GRADIENT = {
    "makes a new tensor": """
        minitorch.FloatTensor minitorch.LongTensor minitorch.normal
        minitorch.arange minitorch.as_tensor minitorch.empty minitorch.empty_like
        minitorch.eye minitorch.from_dlpack minitorch.from_numpy minitorch.full
        minitorch.full_like minitorch.linspace minitorch.meshgrid minitorch.ones
        minitorch.ones_like minitorch.rand minitorch.rand_like minitorch.randint
        minitorch.multinomial Tensor.multinomial minitorch.bernoulli Tensor.bernoulli
        minitorch.randint_like minitorch.randn
        minitorch.randn_like minitorch.randperm
        minitorch.tensor minitorch.zeros minitorch.zeros_like Tensor.new_tensor
        Tensor.new_full Tensor.new_zeros Tensor.new_ones Tensor.arange_like""",
    "says what a tensor is": """
        minitorch.is_floating_point minitorch.is_tensor minitorch.numel Tensor.shape
        minitorch.result_type
        Tensor.size Tensor.dim Tensor.ndim Tensor.numel Tensor.nelement
        Tensor.element_size
        Tensor.stride Tensor.storage_offset Tensor.is_contiguous
        Tensor.is_floating_point Tensor.dtype Tensor.device Tensor.is_cuda
        Tensor.backend
        Tensor.grad_fn Tensor.is_pinned
        Tensor.__len__""",
    "gives numbers to Python and to others": """
        Tensor.__bool__ Tensor.__contains__ Tensor.__float__ Tensor.__int__
        Tensor.__index__ Tensor.item
        Tensor.tolist Tensor.numpy Tensor.__array__ Tensor.__dlpack__
        Tensor.__dlpack_device__ Tensor.__cuda_array_interface__ Tensor.__deepcopy__
        minitorch.load minitorch.save""",
    "is autograd itself": """
        minitorch.grad minitorch.is_grad_enabled Tensor.requires_grad_ Tensor.backward
        minitorch.is_inference_mode_enabled
        Tensor.edge Tensor.is_leaf Tensor.accumulate_grad Tensor.register_hook
        Tensor.retain_grad Tensor.register_post_accumulate_grad_hook Tensor.assign_
        Tensor.view_of Tensor.renew_view Tensor.wrap""",
    "sets or asks for something else": """
        minitorch.available_devices minitorch.compile minitorch.manual_seed
        minitorch.initial_seed minitorch.get_rng_state minitorch.set_rng_state
        minitorch.get_float32_matmul_precision minitorch.set_float32_matmul_precision
        functional.as_sizes functional.check_same_device functional.checked_tensor
        functional.applied functional.random_zeros functional.cast""",
    "needs another device": "Tensor.cuda Tensor.pin_memory",
    "is sparse, see test_sparse.py": """
        minitorch.sparse_csr_tensor Tensor.to_sparse_csr""",
}


def _with_few(ops: list[Operation]) -> list[Operation]:
    """Those that say nothing of `others`, with few of them."""
    return [replace(op, others="few") if op.others == "all" else op for op in ops]


OPERATIONS = {
    "elementwise": _with_few(ELEMENTWISE),
    "reduce": _with_few(REDUCE),
    "matmul": MATMUL,
    "movement": MOVEMENT,
    "index": INDEX,
    "forms": FORMS,
    "in place": IN_PLACE,
    "functional": FUNCTIONAL,
}

__all__ = [
    "OPERATIONS",
    "TORCH_DTYPES",
    "WITHOUT_GRADIENT",
    "Calls",
    "Operation",
    "assert_same",
    "check_backward",
    "check_differences",
    "check_forward",
    "check_refusal",
    "dtypes",
    "each",
    "elements",
    "public_operations",
    "samples",
    "weighted_sum",
]
