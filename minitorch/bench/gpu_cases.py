"""What is timed on a GPU: each family at sizes that fill it, and the ladders.

With this file one can list the cases for the device "cuda" (`gpu_cases`) and its
ladders (`gpu_ladder`). Both libraries work on the same memory (`gpu_inputs.py`); what
a program waits for is in `gpu_steps.py`. A goal is a ratio of times: 1.4 times
PyTorch's speed is 0.71.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import minitorch as mt
import minitorch.nn.functional as F
from minitorch.bench.cases import Case, Pair, torch_module
from minitorch.bench.gpu_inputs import backward, both, set_up, simple
from minitorch.bench.gpu_steps import (
    epoch_cases,
    optimizer_cases,
    step_cases,
    tiny_cases,
)

LARGE = 2**28
ROWS, COLUMNS = 16_384, 4_096


def nearly_equal(ours: Any, theirs: Any) -> bool:
    """Whether our result is PyTorch's, up to a thousandth of its largest element."""
    if not isinstance(ours, mt.Tensor):
        ours = mt.Tensor(ours)  # a ladder's rung gives the raw data
    mine = torch_module().from_dlpack(ours.detach()).reshape(theirs.shape)
    top = float(theirs.abs().max())
    return bool(float((mine - theirs).abs().max()) <= 1e-3 * top)


def _case(
    family: str, name: str, op: Any, their_op: Any, shapes: Any, flops: float,
    moved: float, goal: float, agree: Any = nearly_equal,
) -> Case:  # fmt: skip
    build = partial(simple, op, their_op, *shapes)
    return Case(family, name, build, flops, moved, goal, agree=agree)


# ------------------------------------------------------------------ element by element


def elementwise_cases() -> Iterator[Case]:
    """Operations on 2**28 elements, which no cache holds."""
    torch = torch_module()
    gelu = torch.nn.functional.gelu
    add, n = (lambda x, y: x + y), LARGE
    one = "elementwise"
    yield _case(one, "add 2^28", add, add, [(n,), (n,)], 0, 12.0 * n, 1.03)
    for name, op, their_op in (
        ("relu", lambda x: x.relu(), torch.relu),
        ("gelu", lambda x: x.gelu(), gelu),
        ("exp", lambda x: x.exp(), torch.exp),
    ):
        yield _case(one, f"{name} 2^28", op, their_op, [(n,)], 0, 8.0 * n, 1.03)
    flip = lambda x, y: x + y.T
    square = [(8192, 8192)] * 2
    yield _case(one, "add transposed", flip, flip, square, 0, 12.0 * 8192**2, 1.0)


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
        yield _case("copies", name, copied, copied, [shape], 0, 8.0 * prod(shape), 1.0)


def fused_cases() -> Iterator[Case]:
    """What one kernel does where PyTorch starts several."""
    TF = torch_module().nn.functional
    n, size = COLUMNS, 4.0 * ROWS * COLUMNS
    matrix = (ROWS, n)
    yield _case(
        "fused", "bias + gelu", lambda x, b: F.bias_activation(x, b, "gelu"),
        lambda x, b: TF.gelu(x + b), [matrix, (n,)], 0, 2 * size, 0.455,
    )  # fmt: skip
    yield _case(
        "fused", "dropout + residual + layer norm",
        lambda x, r, w, b: F.dropout_residual_layer_norm(x, r, n, w, b, p=0.1),
        lambda x, r, w, b: TF.layer_norm(TF.dropout(x, 0.1) + r, (n,), w, b),
        [matrix, matrix, (n,), (n,)], 0, 3 * size, 0.455, None,
    )  # fmt: skip
    yield _case(
        "fused", "softmax", lambda x: x.softmax(-1), lambda x: x.softmax(-1),
        [matrix], 0, 2 * size, 0.714,
    )  # fmt: skip
    yield _case(
        "fused", "layer norm", lambda x, w, b: F.layer_norm(x, n, w, b),
        lambda x, w, b: TF.layer_norm(x, (n,), w, b),
        [matrix, (n,), (n,)], 0, 2 * size, 0.714,
    )  # fmt: skip
    yield _backward(
        "softmax, backward", lambda x: x.softmax(-1), lambda x: x.softmax(-1),
        [matrix], 3 * size,
    )  # fmt: skip
    yield _backward(
        "layer norm, backward", lambda x, w, b: F.layer_norm(x, n, w, b),
        lambda x, w, b: TF.layer_norm(x, (n,), w, b), [matrix, (n,), (n,)], 3 * size,
    )  # fmt: skip


def _backward(name: str, op: Any, their_op: Any, shapes: Any, moved: float) -> Case:
    build = partial(backward, op, their_op, *shapes)
    return Case("fused", name, build, 0, moved, 1.0, agree=nearly_equal)


def reduce_cases() -> Iterator[Case]:
    """Sums of rows, of columns and of everything."""
    for where, dim in (("last", 1), ("first", 0), ("all", None)):
        op = (lambda x: x.sum()) if dim is None else partial(_sum, dim=dim)
        moved = 4.0 * ROWS * COLUMNS
        name = f"sum over {where}, {ROWS} x {COLUMNS}"
        yield _case("reduce", name, op, op, [(ROWS, COLUMNS)], 0, moved, 1.0)


def _sum(x: Any, dim: int) -> Any:
    return x.sum(dim)


# ------------------------------------------------------------------------- products


def matmul_cases() -> Iterator[Case]:
    """Square products in float32, and in TF32 on the tensor cores."""
    for n, goal in (
        (512, 1.43),
        (1024, 1.43),
        (2048, 1.43),
        (4096, 1.11),
        (8192, 1.11),
    ):
        yield _product(f"{n}, float32", n, goal, "highest")
    yield _product("1024, TF32", 1024, 1.0, "high")
    yield _product("2048, TF32", 2048, 1.0, "high")
    yield _product("4096, TF32", 4096, 2.0, "high")
    yield _product("8192, TF32", 8192, 2.0, "high")


def _product(name: str, n: int, goal: float, precision: str) -> Case:
    times = lambda a, b: a @ b
    build = partial(simple, times, times, (n, n), (n, n), precision=precision)
    flops, moved = 2.0 * n**3, 12.0 * n * n
    return Case("matmul", name, build, flops, moved, goal, agree=nearly_equal)


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
    for name, n, c, size, o, k in SHAPES:
        shapes = ((n, c, size, size), (o, c, k, k))
        op = lambda x, w, p=k // 2: F.conv2d(x, w, padding=p)
        their_op = partial(_their_conv, padding=k // 2)
        flops = 2.0 * n * o * c * k * k * size * size
        moved = 4.0 * n * size * size * (c + o)
        yield _case("conv", name, op, their_op, shapes, flops, moved, 1.25)
        build = partial(backward, op, their_op, *shapes)
        yield Case(
            "conv", f"{name}, backward", build, 2 * flops, 2 * moved, 1.43,
            agree=nearly_equal,
        )  # fmt: skip


def _their_conv(x: Any, w: Any, padding: int) -> Any:
    return torch_module().nn.functional.conv2d(x, w, padding=padding)


def sparse_cases() -> Iterator[Case]:
    """A sparse matrix in CSR form times a dense one, against cuSPARSE."""
    for percent in (10, 1):
        nnz = 8192 * 8192 * percent / 100
        yield Case(
            "sparse", f"CSR 8192 x 8192 at {percent} % @ 8192 x 128",
            partial(_sparse, percent / 100), 2 * nnz * 128,
            8 * nnz + 8.0 * 8192 * 128, 1.0, agree=nearly_equal,
        )  # fmt: skip


def _sparse(density: float) -> Pair:
    set_up()
    ours, theirs, (b, their_b) = _sparse_operands(8192, density)
    return lambda: ours @ b, lambda: theirs @ their_b


def _sparse_operands(n: int, density: float) -> tuple[Any, Any, tuple[Any, Any]]:
    """A sparse matrix [n, n] and a dense one [n, 128], each ours and PyTorch's."""
    torch = torch_module()
    (b,), (their_b,) = both((n, 128))
    a = torch.randn(n, n, device="cuda")
    a *= torch.rand_like(a) < density
    theirs = a.to_sparse_csr()
    crow, col = (x.int() for x in (theirs.crow_indices(), theirs.col_indices()))
    theirs = torch.sparse_csr_tensor(crow, col, theirs.values(), theirs.shape)
    rows, columns, values = (mt.from_dlpack(x) for x in (crow, col, theirs.values()))
    ours = mt.sparse_csr_tensor(rows, columns, values, (n, n))
    return ours, theirs, (b, their_b)


def _mojo_cases() -> Iterator[Case]:
    from minitorch.bench.mojo_cases import mojo_cases

    yield from mojo_cases()


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "elementwise": elementwise_cases,
    "copies": copy_cases,
    "fused": fused_cases,
    "reduce": reduce_cases,
    "matmul": matmul_cases,
    "conv": conv_cases,
    "sparse": sparse_cases,
    "tiny": tiny_cases,
    "optim": optimizer_cases,
    "step": step_cases,
    "epoch": epoch_cases,
    "mojo": _mojo_cases,
}
EXTRA = ("mojo",)  # families that need more than the device: only when named


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
    "reduce": 16_384,
    "transpose": 8192,
    "softmax": 4096,
    "sparse": 8192,
}


def gpu_ladder(family: str, size: int | None = None) -> Iterator[Case]:
    """The rungs of a ladder on square matrices of `size` rows, each against PyTorch.

    Raises:
        ValueError: the family has no ladder.
    """
    if family not in LADDER_SIZES:
        raise ValueError(
            f"bench: {family!r} has no ladder on the GPU; choose from "
            f"{', '.join(LADDER_SIZES)}"
        )
    torch = torch_module()
    torch.set_float32_matmul_precision("highest")
    n = size or LADDER_SIZES[family]
    if family == "sparse":
        yield from _sparse_ladder(n)
        return
    rungs, op, flops, moved = {
        "matmul": (_matmul_rungs, torch.matmul, 2.0 * n**3, 12.0 * n * n),
        "reduce": (_reduce_rungs, torch.sum, 0.0, 4.0 * n * n),
        "transpose": (_transpose_rungs, _their_transpose, 0.0, 8.0 * n * n),
        "softmax": (_softmax_rungs, _their_softmax, 0.0, 8.0 * n * n),
    }[family]
    for rung in rungs():
        shapes = [(n, n)] * (2 if family == "matmul" else 1)
        build = partial(on_raw, rung, op, shapes)
        yield Case(family, rung.__name__, build, flops, moved, agree=nearly_equal)


def _sparse_ladder(n: int) -> Iterator[Case]:
    """A sparse matrix [n, n], of which 1 % is not zero, times 128 columns."""
    from cuda_ops.ladders.sparse import LADDER

    nnz = n * n / 100
    flops, moved = 2 * nnz * 128, 8 * nnz + 8.0 * n * 128
    for name, rung in LADDER.items():
        build = partial(_sparse_rung, rung, n)
        yield Case("sparse", name, build, flops, moved, agree=nearly_equal)


def _sparse_rung(rung: Callable, n: int) -> Pair:
    ours, theirs, (b, their_b) = _sparse_operands(n, 0.01)
    parts = ours.crow_indices().raw, ours.col_indices().raw, ours.values().raw
    return lambda: rung(*parts, b.raw), lambda: theirs @ their_b


def on_raw(rung: Callable, their_op: Callable, shapes: list[Any]) -> Pair:
    """A launcher, which takes raw data, and a function of PyTorch's tensors."""
    ours, theirs = both(*shapes)
    raws = [tensor.raw for tensor in ours]
    return lambda: rung(*raws), lambda: their_op(*theirs)


def _matmul_rungs() -> Any:
    from cuda_ops.matmul.matmul import LADDER, runs_here

    return filter(runs_here, LADDER)


def _reduce_rungs() -> Any:
    from cuda_ops.ladders.reduce import LADDER

    return LADDER


def _transpose_rungs() -> Any:
    from cuda_ops.transpose import LADDER

    return LADDER


def _softmax_rungs() -> Any:
    from cuda_ops.ladders.softmax import LADDER

    return LADDER


def _their_transpose(x: Any) -> Any:
    return x.T.contiguous()


def _their_softmax(x: Any) -> Any:
    return x.softmax(-1)
