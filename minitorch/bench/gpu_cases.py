"""What is timed on a GPU: each family at sizes that fill it, and the ladders.

With this file one can list the cases for the device "cuda" (`gpu_cases`) and its
ladders (`gpu_ladder`). Both libraries work on the same memory (`inputs.py`); what
a program waits for is in `gpu_steps.py`. A goal is a ratio of times: 1.4 times
PyTorch's speed is 0.71.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any

import minitorch.nn.functional as F
from minitorch.bench.cases import convolution, rungs_of, sparse_cases, sparse_rungs
from minitorch.bench.compiled import compile_cases
from minitorch.bench.gpu_steps import (
    epoch_cases,
    optimizer_cases,
    step_cases,
    tiny_cases,
)
from minitorch.bench.inputs import (
    Case,
    Pair,
    backward,
    both,
    forward_and_backward,
    nearly_equal,
    on_raw,
    simple,
    their_device,
    timed,
    torch_module,
)
from minitorch.cuda import get_device_capability
from minitorch.quantization import quantize

LARGE = 2**28
ROWS, COLUMNS = 16_384, 4_096
# Batch, heads, positions, numbers of a head.
HEADS = (8, 12, 1024, 64)


# ------------------------------------------------------------------ element by element


def elementwise_cases() -> Iterator[Case]:
    """Operations on 2**28 elements, which no cache holds."""
    torch, n = torch_module(), LARGE
    case = partial(timed, "elementwise")
    yield case("add 2^28", operator.add, [(n,), (n,)], 12.0 * n, 1.03)
    for name, theirs in (
        ("relu", torch.relu), ("gelu", torch.nn.functional.gelu), ("exp", torch.exp)
    ):  # fmt: skip
        op = operator.methodcaller(name)
        yield case(f"{name} 2^28", op, [(n,)], 8.0 * n, 1.03, theirs=theirs)
    flip = lambda x, y: x + y.T
    yield case("add transposed", flip, [(8192, 8192)] * 2, 12.0 * 8192**2)


def copy_cases() -> Iterator[Case]:
    """Elements in another order: what `contiguous()` does with a permuted tensor."""
    for name, shape, order in (
        ("2048 transposed", (2048, 2048), (1, 0)),
        ("8192 transposed", (8192, 8192), (1, 0)),
        ("2047 x 2049 transposed", (2047, 2049), (1, 0)),
        ("NCHW to NHWC, 64 channels", (64, 64, 56, 56), (0, 2, 3, 1)),
        ("NHWC to NCHW, 64 channels", (64, 56, 56, 64), (0, 3, 1, 2)),
        ("NCHW to NHWC, 3 channels", (64, 3, 224, 224), (0, 2, 3, 1)),
        ("heads of 64 to the front", (32, 512, 8, 64), (0, 2, 1, 3)),
    ):
        copied = lambda x, order=order: x.permute(*order).contiguous()
        yield timed("copies", name, copied, [shape], 8.0 * prod(shape))


def fused_cases() -> Iterator[Case]:
    """What one kernel does where PyTorch starts several."""
    TF = torch_module().nn.functional
    n, size = COLUMNS, 4.0 * ROWS * COLUMNS
    matrix, row = (ROWS, n), (n,)
    case = partial(timed, "fused")
    yield case(
        "bias + gelu", lambda x, b: F.bias_activation(x, b, "gelu"), [matrix, row],
        2 * size, 0.455, theirs=lambda x, b: TF.gelu(x + b),
    )  # fmt: skip
    yield case(
        "dropout + residual + layer norm",
        lambda x, r, w, b: F.dropout_residual_layer_norm(x, r, n, w, b, p=0.1),
        [matrix, matrix, row, row], 3 * size, 0.455, agree=None,
        theirs=lambda x, r, w, b: TF.layer_norm(TF.dropout(x, 0.1) + r, row, w, b),
    )  # fmt: skip
    softmax = lambda x: x.softmax(-1)
    norm = lambda x, w, b: F.layer_norm(x, row, w, b)
    theirs = lambda x, w, b: TF.layer_norm(x, row, w, b)
    norms = [matrix, row, row]
    yield case("softmax", softmax, [matrix], 2 * size, 0.714)
    yield case("layer norm", norm, norms, 2 * size, 0.714, theirs=theirs)
    yield case("softmax, backward", softmax, [matrix], 3 * size, how=backward)
    yield case(
        "layer norm, backward", norm, norms, 3 * size, theirs=theirs, how=backward
    )


def reduce_cases() -> Iterator[Case]:
    """Sums of rows, of columns and of everything."""
    for where, dim in (("last", 1), ("first", 0), ("all", None)):
        op = lambda x, dim=dim: x.sum() if dim is None else x.sum(dim)
        name = f"sum over {where}, {ROWS} x {COLUMNS}"
        yield timed("reduce", name, op, [(ROWS, COLUMNS)], 4.0 * ROWS * COLUMNS)


# ------------------------------------------------------------------------- products


def matmul_cases() -> Iterator[Case]:
    """Square products in float32, float64 and TF32; on a Hopper tensor cores make those
    of float32, too, but for small ones."""
    hopper = their_device() == "cuda" and get_device_capability() == (9, 0)
    for kind, precision, n, goal in (
        ("float32", "highest", 512, 1.43),
        ("float32", "highest", 1024, 1.43),
        ("float32", "highest", 2048, 1.43),
        ("float32", "highest", 3620, 1.43),
        ("float64", "highest", 3620, 1.43),
        ("float32", "highest", 4096, 1.11),
        ("float32", "highest", 8192, 1.11),
        ("TF32", "high", 1024, 1.0),
        ("TF32", "high", 2048, 1.0),
        ("TF32", "high", 4096, 2.0),
        ("TF32", "high", 8192, 2.0),
    ):
        item = 8 if kind == "float64" else 4
        how = partial(simple, precision=precision, dtype=f"float{8 * item}")
        yield timed(
            "matmul", f"{n}, {kind}", operator.matmul, [(n, n)] * 2, 3.0 * item * n * n,
            goal, flops=2.0 * n**3, how=how,
            tensor=kind == "TF32" or (hopper and kind == "float32" and n > 512),
        )  # fmt: skip


LAYERS = ((768, 2304), (3072, 768), (1600, 4800), (4096, 14336), (14336, 4096))


def few_cases() -> Iterator[Case]:
    """Layers of few rows, in to out: GPT-2's, GPT-2 XL's and an 8B model's, and a head.

    Each number of a weight is used once for a row, so all of it is reading. Beside
    quantized weights PyTorch multiplies what they were made of.
    """
    theirs = torch_module().nn.functional.linear
    for (width, units), rows, dtype in product(
        (*LAYERS, (768, 50257)), (1, 4, 8, 16), ("float32", "bfloat16")
    ):
        half = dtype == "bfloat16"
        yield timed(
            "few", f"{width} -> {units}, {rows} of {dtype}", F.linear,
            [(rows, width), (units, width), (units,)],
            (2.0 if half else 4.0) * width * units, 1.0, theirs=theirs,
            how=partial(simple, dtype=dtype),
            agree=partial(nearly_equal, error=1e-2) if half else nearly_equal,
        )  # fmt: skip
        for kind, bytes_, error in (("int8", 1.0, 2e-2), ("int4", 0.5625, 2e-1)):
            yield timed(
                "few", f"{width} -> {units}, {rows} of {dtype}, {kind}", F.linear,
                [(rows, width), (units, width), (units,)], bytes_ * width * units, 1.0,
                theirs=theirs, how=partial(quantized, kind=kind, dtype=dtype),
                agree=partial(nearly_equal, error=error),
            )  # fmt: skip


def quantized(
    op: Callable, their_op: Callable, *shapes: tuple[int, ...], kind: str, dtype: str
) -> Pair:
    """A layer whose weight is quantized on our side, and as it was on theirs."""
    (x, weight, bias), theirs = both(*shapes, dtype=dtype)
    given = (x, *quantize(weight, kind), bias)
    return partial(F.quantized_linear, *given), partial(their_op, *theirs)


def attention_cases() -> Iterator[Case]:
    """Causal attention of GPT-2's size, in float32 and in TF32."""
    torch_attention = torch_module().nn.functional.scaled_dot_product_attention
    ours = partial(F.scaled_dot_product_attention, is_causal=True)
    theirs = partial(torch_attention, is_causal=True)
    for kind, precision, goal in (("float32", "highest", 0.9), ("TF32", "high", 0.45)):
        for what, how, products, agree in (
            ("forward", simple, 2, nearly_equal),
            ("forward + backward", forward_and_backward, 7, None),
        ):
            yield timed(
                "attention", f"8 x 12 x 1024 x 64, {kind}, {what}", ours, [HEADS] * 3,
                4.0 * prod(HEADS) * (4 if products == 2 else 12), goal, theirs=theirs,
                flops=products * HEADS[2] * prod(HEADS), agree=agree,
                how=partial(how, precision=precision), tensor=kind == "TF32",
            )  # fmt: skip


def attention_rungs(rungs: Iterable[Callable], n: int) -> Iterator[Case]:
    """Launchers that take raw query, key and value [8, 12, n, 64], causal; the last one
    takes bfloat16."""
    shape = (*HEADS[:2], n, HEADS[3])
    torch_attention = torch_module().nn.functional.scaled_dot_product_attention
    theirs = partial(torch_attention, is_causal=True)
    for rung in rungs:
        name, half = rung.__name__, rung.__name__ == "attention_warpgroup"
        build = partial(on_raw, half=half)
        yield Case(
            "attention", name,
            partial(build, partial(rung, causal=True), theirs, [shape] * 3),
            2.0 * n * prod(shape), (8.0 if half else 16.0) * prod(shape),
            agree=partial(nearly_equal, error=1e-2) if half else nearly_equal,
            tensor=half or name == "attention_tensor_core",
        )  # fmt: skip


SHAPES = (  # what, N, C, H, O, kernel
    ("LeNet 1 -> 6, 28, 5 x 5", 512, 1, 28, 6, 5),
    ("LeNet 6 -> 16, 14, 5 x 5", 512, 6, 14, 16, 5),
    ("MNIST 32 -> 64, 26, 3 x 3", 64, 32, 26, 64, 3),
    ("ResNet 64 -> 64, 56, 3 x 3", 64, 64, 56, 64, 3),
    ("ResNet 256 -> 256, 14, 3 x 3", 64, 256, 14, 256, 3),
    ("ResNet 64 -> 256, 56, 1 x 1", 64, 64, 56, 256, 1),
)


def conv_cases() -> Iterator[Case]:
    """Convolutions of small and of large networks, forward and backward by itself."""
    for shape in SHAPES:
        yield from convolution(*shape, goals=(1.25, 1.43))


def _mojo_cases() -> Iterator[Case]:
    from minitorch.bench.mojo_cases import mojo_cases

    yield from mojo_cases()


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "elementwise": elementwise_cases,
    "copies": copy_cases,
    "fused": fused_cases,
    "reduce": reduce_cases,
    "matmul": matmul_cases,
    "few": few_cases,
    "attention": attention_cases,
    "conv": conv_cases,
    "sparse": partial(sparse_cases, 8192, 1.0),
    "tiny": tiny_cases,
    "optim": optimizer_cases,
    "step": step_cases,
    "epoch": epoch_cases,
    "mojo": _mojo_cases,
    "compile": partial(compile_cases, 8192, COLUMNS),
}
EXTRA = ("mojo", "compile")  # families that need more than the device: only when named


def gpu_cases(families: list[str] | None = None) -> Iterator[Case]:
    """The cases of the named families, or of all but `EXTRA`.

    Raises:
        ValueError: there is no family of that name.
    """
    for name in families or [name for name in FAMILIES if name not in EXTRA]:
        if name not in FAMILIES:
            raise ValueError(
                f"bench: there is no family {name!r} on the GPU; choose from "
                f"{', '.join(FAMILIES)}"
            )
        yield from FAMILIES[name]()


# --------------------------------------------------------------------------- ladders

LADDER_SIZES = {
    "matmul": 2048,
    "attention": 1024,
    "reduce": 16_384,
    "transpose": 8192,
    "softmax": 4096,
    "sparse": 8192,
}


def gpu_ladder(family: str, size: int | None = None) -> Iterator[Case]:
    """The rungs of a ladder on square matrices of `size` rows, each against PyTorch.

    A sparse matrix is multiplied by 128 columns and by one, and has rows that are about
    equally long, or some that are full. Of attention `size` is the number of positions.

    Raises:
        ValueError: the family has no ladder.
    """
    from cuda_ops import transpose
    from cuda_ops.attention import attention
    from cuda_ops.ladders import reduce, softmax, sparse
    from cuda_ops.matmul import matmul

    if family not in LADDER_SIZES:
        raise ValueError(
            f"bench: {family!r} has no ladder on the GPU; choose from "
            f"{', '.join(LADDER_SIZES)}"
        )
    n = size or LADDER_SIZES[family]
    if family == "sparse":
        return sparse_rungs(sparse.LADDER.values(), n, [(n, 128), (n, 1)], 8)
    if family == "attention":
        rungs_here = filter(attention.runs_here, attention.LADDER)
        return attention_rungs(rungs_here, n)
    rungs: dict[str, Any] = {
        "matmul": filter(matmul.runs_here, matmul.LADDER),
        "reduce": reduce.LADDER,
        "transpose": transpose.LADDER,
        "softmax": softmax.LADDER,
    }
    return rungs_of(family, rungs[family], n)
