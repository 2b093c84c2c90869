"""Errors of each backend beside PyTorch's on the same processor, in the same type.

Both get numbers of that type, and are compared with PyTorch in float64. An error is
the largest of a tensor. Ours may be twice theirs, that of a gradient three times,
and a last bit of float32 of the tensor's largest number where theirs is that small. In
TF32 theirs are products whose factors are rounded before: where sizes are no multiples
of four, PyTorch's libraries make them in float32.

tests/backends/test_host_attention.py has attention on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import minitorch
from helpers import DEVICES, SIMULATED, loaded, numbers
from minitorch.dtypes import DType, bfloat16, float16, float32

TYPES = {"float32": float32, "tf32": float32, "bfloat16": bfloat16, "float16": float16}
EPS = {"float32": 2**-23, "tf32": 2**-10, "bfloat16": 2**-7, "float16": 2**-10}
HOSTS = [(d, kind) for d in ("cpu", "mojo") for kind in TYPES if kind != "tf32"]
GPU = [("cuda", kind) for kind in TYPES] * ("cuda" in DEVICES)
NO_GPU = pytest.param("cuda", "", marks=pytest.mark.skip(reason="no GPU"))
everywhere = pytest.mark.parametrize("device,kind", HOSTS + GPU)
Call = Callable[[Any, Any, list[Any]], Any]


@pytest.fixture(autouse=True)
def pytorch_has_it(device: str) -> None:
    loaded(device)
    if device == "cuda" and (SIMULATED or not torch.cuda.is_available()):
        pytest.skip("this PyTorch has no CUDA, or the GPU is simulated")


@contextmanager
def precision_of(lib: Any, kind: str) -> Iterator[None]:
    """TF32 where it is asked for, in products and convolutions."""
    before = lib.backends.cudnn.allow_tf32
    lib.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    lib.backends.cudnn.allow_tf32 = kind == "tf32"
    try:
        yield
    finally:
        lib.set_float32_matmul_precision("highest")
        lib.backends.cudnn.allow_tf32 = before


def drawn(shape: tuple[int, ...], dtype: DType, seed: int) -> np.ndarray:
    """float64 that `dtype` can hold."""
    return numbers(shape, float32, seed).astype(dtype.numpy).astype(np.float64)


def results(
    lib: Any, device: str, call: Call, arrays: list[np.ndarray], given: DType,
    dtype: str,
) -> list[np.ndarray]:  # fmt: skip
    """The output of call(lib, lib.nn.functional, tensors) and all gradients.

    That of the output has numbers of the type `given`, as the arrays have.
    """
    if lib is torch and device == "mojo":
        device = "cpu"
    tensors = [
        lib.tensor(a, device=device).to(getattr(lib, dtype)).requires_grad_()
        for a in arrays
    ]
    out = call(lib, lib.nn.functional, tensors)
    grad = lib.tensor(drawn(tuple(out.shape), given, 9), device=device).to(out.dtype)
    found = [out, *lib.autograd.grad(out, tensors, grad)]
    return [x.detach().to(lib.float64).cpu().numpy() for x in found]


def compare(
    device: str, kind: str, call: Call, shapes: list[tuple[int, ...]],
    rival: Call | None = None,
) -> None:  # fmt: skip
    dtype = TYPES[kind]
    arrays = [drawn(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    right = results(torch, device, call, arrays, dtype, "float64")
    found = []
    for lib, fn in ((minitorch, call), (torch, rival or call)):
        with precision_of(lib, "float32" if fn is rival else kind):
            found.append(results(lib, device, fn, arrays, dtype, dtype.name))
    for i, (got, other, x) in enumerate(zip(*found, right, strict=True)):
        ours, theirs = (abs(a - x).max(initial=0) for a in (got, other))
        top = abs(x).max(initial=0)
        last_bit = EPS["float32"] * top if top > 1e-9 else EPS[kind] * 8  # nearly 0
        assert ours <= (3 if i else 2) * theirs + last_bit, (i, ours, theirs)


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Round float32 to ten bits of the fraction."""
    return (x.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


class Product(torch.autograd.Function):
    """a @ b in TF32."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        return tf32(a) @ tf32(b)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = map(tf32, ctx.saved_tensors)
        grad = tf32(grad.contiguous())
        return grad @ b.mT, a.mT @ grad


# --------------------------------------------------------------------------- attention

# Tiles have 64, 128 or 192 rows.
LENGTHS = [
    (n, n) for n in (1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1000, 4097)
] + [(70, 300), (5, 4097)]
HEADS = (16, 24, 32, 64, 80, 96, 128, 192, 256)


def attention(causal: bool) -> Call:
    def call(lib: Any, F: Any, x: list[Any]) -> Any:
        return F.scaled_dot_product_attention(*x, is_causal=causal)

    return call


def by_products(causal: bool) -> Call:
    """The same in TF32."""

    def call(lib: Any, F: Any, x: list[Any]) -> Any:
        query, key, value = x
        scores = Product.apply(query, key.mT.contiguous()) * query.shape[-1] ** -0.5
        if causal:
            hidden = torch.ones_like(scores).triu(1) > 0
            scores = scores.masked_fill(hidden, -torch.inf)
        return Product.apply(scores.softmax(-1), value)

    return call


@pytest.mark.parametrize("device,kind", GPU or [NO_GPU])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "L,S,E", [(*n, 64) for n in LENGTHS] + [(300, 300, e) for e in HEADS if e != 64]
)
def test_attention(
    device: str, kind: str, L: int, S: int, E: int, causal: bool
) -> None:
    if kind == "tf32" and L == 1:
        pytest.skip("the weight of one key is exact where it is not made again")
    shapes = [(2, 3, n, E) for n in (L, S, S)]
    rival = by_products(causal) if kind == "tf32" else None
    compare(device, kind, attention(causal), shapes, rival)


# ------------------------------------------------------------------- products and norms


@everywhere
@pytest.mark.parametrize(
    "M,K,N", [(n, n + 8, n) for n in (1, 63, 64, 65, 127, 128, 129, 1000)]
    + [(96, 4097, 72)]
)  # fmt: skip
def test_matmul(device: str, kind: str, M: int, K: int, N: int) -> None:
    rival = (lambda lib, F, x: Product.apply(*x)) if kind == "tf32" else None
    compare(device, kind, lambda lib, F, x: x[0] @ x[1], [(M, K), (K, N)], rival)


@everywhere
@pytest.mark.parametrize("channels", [3, 64])
def test_convolution(device: str, kind: str, channels: int) -> None:
    shapes = [(4, channels, 28, 28), (64, channels, 3, 3), (64,)]
    compare(device, kind, lambda lib, F, x: F.conv2d(*x, padding=1), shapes)


ROWS: dict[str, tuple[Call, list[Callable[[int], tuple[int, ...]]]]] = {
    "linear": (
        lambda lib, F, x: F.linear(*x),
        [lambda n: (9, n), lambda n: (70, n), lambda n: (70,)],
    ),
    "layer norm": (
        lambda lib, F, x: F.layer_norm(x[0], x[1].shape, x[1], x[2]),
        [lambda n: (70, n), lambda n: (n,), lambda n: (n,)],
    ),
    "RMS norm": (
        lambda lib, F, x: F.rms_norm(x[0], x[1].shape, x[1], 1e-5),
        [lambda n: (70, n), lambda n: (n,)],
    ),
    "softmax": (lambda lib, F, x: F.softmax(x[0], -1), [lambda n: (70, n)]),
    "log softmax": (lambda lib, F, x: F.log_softmax(x[0], -1), [lambda n: (70, n)]),
    "cross entropy": (
        lambda lib, F, x: F.cross_entropy(
            x[0], lib.arange(70, device=x[0].device) % x[0].shape[1]
        ),
        [lambda n: (70, n)],
    ),
    "gelu": (lambda lib, F, x: F.gelu(x[0]), [lambda n: (n, 7)]),
    "sum": (lambda lib, F, x: x[0].sum(-1), [lambda n: (7, n)]),
    "mean": (lambda lib, F, x: x[0].mean(0), [lambda n: (n, 7)]),
}


@pytest.mark.parametrize("device,kind", [d for d in HOSTS + GPU if d[1] != "tf32"])
@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000, 4097])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, n: int, device: str, kind: str) -> None:
    call, shapes = ROWS[name]
    compare(device, kind, call, [shape(n) for shape in shapes])
