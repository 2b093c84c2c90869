"""Kernels that read and write float16 and bfloat16 by themselves.

What they give is what their float32 form gives between a widening and a rounding, bit
for bit; the widening is `LowPrecision`'s, around a backend that takes no halves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import minitorch
from helpers import array_of, loaded, make, numbers
from minitorch import operators
from minitorch.amp import autocast
from minitorch.backend import Backend, half_backends
from minitorch.backend.low_precision import LowPrecision
from minitorch.dtypes import DType, bfloat16, bool_, float16, float32
from minitorch.executor import Executor, executing
from minitorch.models import GPT, GPTConfig
from minitorch.tensor_data import TensorData

pytest.importorskip("numba_cuda")

half = pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda d: d.name)


def halves(shape: Any, dtype: DType, seed: int = 0, layout: str = "contiguous") -> Any:
    """Numbers of a half type, an infinity and a NaN among those of vectors."""
    a = numbers(shape, float32, seed)
    if len(shape) == 1 and seed == 0:
        a[:2] = np.inf, np.nan
    return make(a.astype(dtype.numpy), "cuda", layout)


def ids(*values: int) -> TensorData:
    return make(np.array(values), "cuda")


def plain(name: str, *before: Any, after: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """backend.name(*before, operands, *after)"""
    return lambda backend, *operands: getattr(backend, name)(*before, *operands, *after)


# The call, and the shapes of its operands of half types. A row of 40 numbers is two
# vectors and more for no thread; 38 and 35 are no multiples of 4, or of 2.
CALLS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "map": (plain("map", operators.gelu_tanh), [(300,)]),
    "map columns": (
        lambda b, x: b.map(operators.exp, x.permute((1, 0))), [(6, 35)],
    ),
    "map to bool": (lambda b, x: b.map(operators.isnan, x, bool_), [(38,)]),
    "zip": (plain("zip", operators.add), [(300,), (300,)]),
    "zip row": (plain("zip", operators.mul), [(5, 40), (40,)]),
    "zip column": (plain("zip", operators.sub), [(5, 1), (5, 38)]),
    "zip strided": (
        lambda b, x, y: b.zip(operators.div, x, y.permute((1, 0))), [(7, 6), (6, 7)],
    ),
    "zip in place": (
        lambda b, x, y: b.zip(operators.add, x, y, None, x), [(6, 7), (6, 7)],
    ),
    "zip number": (
        lambda b, x: b.zip(operators.mul, x, b.number(0.1, x.dtype)), [(39,)],
    ),
    "number zip": (
        lambda b, x: b.zip(operators.div, b.number(0.1, x.dtype), x), [(39,)],
    ),
    "where": (
        lambda b, x, y: b.where(b.zip(operators.lt, x, y, bool_), x, y),
        [(39,), (39,)],
    ),
    "where number": (
        lambda b, x: b.where(
            b.map(operators.isnan, x, bool_), b.number(0.1, x.dtype), x
        ),
        [(39,)],
    ),
    "sum": (lambda b, x: b.reduce(operators.add, x, (0, 1), 0), [(70, 40)]),
    "sum of rows": (lambda b, x: b.reduce(operators.add, x, (1,), 0), [(3, 40)]),
    "sum over rows": (lambda b, x: b.reduce(operators.add, x, (0,), 0), [(300, 40)]),
    "sum over short rows": (
        lambda b, x: b.reduce(operators.add, x, (0,), 0), [(300, 3)],
    ),
    "sum in float32": (
        lambda b, x: b.reduce(operators.add, x, (0,), 0, float32), [(9, 40)],
    ),
    "largest": (
        lambda b, x: b.reduce(operators.maximum, x, (1,), -np.inf), [(4, 9)],
    ),
    "bias": (plain("bias_activation", after=(operators.gelu,)), [(6, 40), (40,)]),
    "bias in place": (
        lambda b, x, y: b.bias_activation(x, y, None, x), [(6, 35), (35,)],
    ),
    "bias backward": (
        plain("bias_activation_backward", after=(operators.gelu_backward,)),
        [(6, 40), (6, 40), (40,)],
    ),
    "dropout": (plain("dropout", after=(0.4, 3, 5)), [(301,)]),
    "softmax": (plain("softmax", after=(1,)), [(5, 40)]),
    "softmax along columns": (plain("softmax", after=(0,)), [(6, 38)]),
    "log_softmax backward": (plain("log_softmax_backward", after=(1,)), [(5, 35)] * 2),
    "softmax backward along columns": (
        plain("softmax_backward", after=(0,)), [(6, 38)] * 2,
    ),
    "layer norm": (plain("layer_norm", after=(1e-5,)), [(5, 40), (40,), (40,)]),
    "layer norm backward": (
        lambda b, g, x, w: b.layer_norm_backward(
            g, x, *b.layer_norm(x, w, None, 1e-5)[1:], w
        ),
        [(9, 35), (9, 35), (35,)],
    ),
    "cross entropy": (
        lambda b, x: b.cross_entropy(x, ids(0, 39, 7, -1), -1), [(4, 40)],
    ),
    "cross entropy backward": (
        lambda b, g, x: b.cross_entropy_backward(
            g, x, ids(0, 34, 7, -1), b.cross_entropy(x, ids(0, 34, 7, -1), -1)[1], -1
        ),
        [(4,), (4, 35)],
    ),
    "index_select": (lambda b, x: b.index_select(x, 0, ids(3, 0, 3)), [(4, 40)]),
    "gather": (
        lambda b, x: b.gather(x, 1, make(np.eye(3, 4, dtype=np.int64), "cuda")),
        [(3, 5)],
    ),
    "index_copy_": (
        lambda b, x, y: (b.index_copy_(x, 0, ids(2, 0), y), x)[1], [(4, 6), (2, 6)],
    ),
    "index_copy_ of one": (
        lambda b, x, y: (b.index_copy_(x, 1, ids(2), y), x)[1], [(4, 6), (4, 1)],
    ),
    "paged_attention": (
        lambda b, x, y: (
            out := b.empty(x.shape, x.dtype),
            b.paged_attention(out, x, y, make(np.array([[2, 0]]), "cuda"), ids(7), 0.5),
        )[0],
        [(1, 4, 2, 6), (3, 5, 4, 6)],
    ),
    "row @ matrix": (plain("matmul"), [(1, 40), (40, 12)]),
    "matrix @ column": (plain("matmul"), [(2, 6, 2048), (2048, 1)]),
}  # fmt: skip


def widening() -> Backend:
    """The same kernels, of which none takes halves."""
    own = {"takes_half": Backend.takes_half, "tries_half": frozenset()}
    return type("Widening", (type(loaded("cuda")),), own)()


@half
@pytest.mark.parametrize("name", CALLS)
def test_as_widened_to_the_bit(name: str, dtype: DType) -> None:
    call, shapes = CALLS[name]
    results = []
    for backend in (half_backends["cuda"], LowPrecision(widening())):
        operands = [halves(s, dtype, i) for i, s in enumerate(shapes)]
        made = call(backend, *operands)
        results.append(made if isinstance(made, tuple) else (made,))
    for mine, wide in zip(*results, strict=True):
        assert mine.dtype is wide.dtype and mine.shape == wide.shape
        np.testing.assert_array_equal(
            *(array_of(a).astype(float) for a in (mine, wide))
        )


@half
def test_rounding_of_what_kernels_store(dtype: DType) -> None:
    """To the nearest, ties to the even one, from float32 and from float64."""
    values = [
        0.0, -0.0, 1.00390625, 1.01171875, -1.00390625, 1 / 3, 65519.0, 65520.0,
        -65520.0, 3.39e38, -3.4e38, 1e-40, 3e-8, 2.9e-8, 6e-5, np.inf, -np.inf, np.nan,
    ]  # fmt: skip
    backend = loaded("cuda")
    for kind in (np.float32, np.float64):
        x = make(np.array(values, kind), "cuda")
        expected = torch.tensor(values).to(getattr(torch, dtype.name))
        for made in (
            backend.map(operators.identity, x, dtype),
            backend.copy(make(np.array(values, kind), "cuda", "stepped"), dtype),
        ):
            found = array_of(made).astype(float)
            np.testing.assert_array_equal(found, expected.double().numpy())
            zeros = np.signbit(found[:2]).tolist()
            assert zeros == [False, True]


@half
def test_every_type_becomes_half_and_back(dtype: DType) -> None:
    backend = loaded("cuda")
    for layout in ("contiguous", "permuted"):
        for kind in ("bool", "int32", "int64", "float64", "float16", "bfloat16"):
            a = np.array([[0, 1, 3], [-2, 7, 5]]).astype(getattr(minitorch, kind).numpy)
            x = make(a, "cuda", layout)
            there = backend.copy(x, dtype)
            assert there.dtype is dtype
            np.testing.assert_array_equal(
                array_of(there).astype(float), a.astype(float)
            )
            assert array_of(backend.copy(there, x.dtype)).tolist() == a.tolist()


def test_a_word_is_copied_as_it_is() -> None:
    """A NaN keeps its bits where nothing is converted."""
    words = np.array([[0x7F81, 0xFF81], [0x7FFF, 1]], np.uint16)
    x = make(words.view(bfloat16.numpy), "cuda")
    for moved in (x, x.permute((1, 0))):
        found = array_of(loaded("cuda").copy(moved, bfloat16))
        assert (
            found.view(np.uint16).tolist() == array_of(moved).view(np.uint16).tolist()
        )


class Names(Executor):
    """The functions that are called with halves, or shall give some."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def call(self, name: str, fn: Any, args: Any, kwargs: Any) -> Any:
        flat = [a for arg in args for a in (arg if type(arg) is tuple else (arg,))]
        kinds = [
            a if isinstance(a, DType) else getattr(a, "dtype", float32) for a in flat
        ]
        if any(kind.half for kind in kinds):
            self.found.add(name)
        return fn(*args, **kwargs)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_training_step_of_a_gpt_widens_nothing(dropout: float) -> None:
    """Whatever such a step calls with halves is in one of the backend's lists.

    It runs on the CPU, which widens them, since the calls are the same.
    """
    model = GPT(GPTConfig(9, 8, 1, 2, 16, dropout=dropout))
    tokens = minitorch.tensor(np.arange(9)[None])
    with executing(Names()) as names:
        with autocast("cpu", dtype=bfloat16):
            loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
    backend = loaded("cuda")
    assert {"bias_activation", "cross_entropy", "matmul", "reduce"} <= names.found
    assert names.found <= backend.takes_half | backend.tries_half


@half
def test_logits_are_not_widened_for_their_loss(dtype: DType) -> None:
    logits = minitorch.Tensor(halves((4, 40), dtype)).requires_grad_()
    target = minitorch.tensor([0, 39, 7, -1], device="cuda")
    with executing(Names()) as names, autocast("cuda", dtype=dtype):
        loss = minitorch.nn.functional.cross_entropy(logits, target, ignore_index=-1)
        loss.backward()
    wide = logits.detach().float().requires_grad_()
    same = minitorch.nn.functional.cross_entropy(wide, target, ignore_index=-1)
    same.backward()
    assert loss.dtype is float32 and loss.item() == same.item()
    assert logits.grad.dtype is dtype and logits.grad.equal(wide.grad.to(dtype))
    assert names.found == {"cross_entropy", "cross_entropy_backward"}


@half
@pytest.mark.parametrize("hooked", [False, True])
def test_halves_beside_float32(dtype: DType, hooked: bool) -> None:
    """A layer norm and a sum give what they give with the halves widened before."""
    F, g = minitorch.nn.functional, minitorch.Tensor(halves((9, 35), dtype, 3))
    found = []
    for mixed in (True, False):
        x, w, y = (
            minitorch.Tensor(a).requires_grad_()
            for a in (
                make(numbers((9, 35), float32, 0), "cuda"),
                make(numbers((35,), float32, 1), "cuda"), halves((9, 35), dtype, 2),
            )
        )  # fmt: skip
        if mixed:
            total, out = y + x, F.layer_norm(x, 35, w, dtype=dtype)
            last = F.layer_norm(total, 35, w, dtype=dtype)
        else:
            total, out = y.float() + x, F.layer_norm(x, 35, w).to(dtype)
            last = F.layer_norm(total, 35, w).to(dtype)
        if hooked:  # of which nothing may be left then
            total.register_hook(lambda grad: grad.mul_(2.0))
        ((total + (out + last).float()) * g.float()).sum().backward()
        assert total.dtype is float32 and out.dtype is dtype is y.grad.dtype
        found.append([total, out, x.grad, w.grad, y.grad])
    for a, b in zip(*found):
        a, b = (t.detach().float().numpy() for t in (a, b))
        np.testing.assert_allclose(a, b, 1e-6, 1e-6)
