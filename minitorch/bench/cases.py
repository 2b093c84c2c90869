"""What is timed on the host: each family at the sizes that matter, and whole steps.

With this file one can list the cases (`all_cases`) and the rungs of the ladders
(`ladder_cases`), and add one: a case builds its inputs when it is run
(`bench/inputs.py`). It knows how many operations and bytes it needs at least, so that a
time can be read as a share of the machine's limit, and the goal that it has to meet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import minitorch as mt
import minitorch.nn as nn
import minitorch.nn.functional as F
import minitorch.optim as optim
from minitorch.bench.compiled import compile_cases
from minitorch.bench.epoch import epoch_cases
from minitorch.bench.inputs import (
    Case,
    Pair,
    backward,
    both,
    forward_and_backward,
    nearly_equal,
    on_our_side,
    on_raw,
    our_device,
    simple,
    sparse_operands,
    their_device,
    timed,
    torch_module,
)
from minitorch.bench.tiny import tiny_cases

# ---------------------------------------------------------------------------- matmul


def matmul_cases() -> Iterator[Case]:
    """Square and oblong products, transposed operands, and a batch."""
    for n in (256, 512, 1024, 2048):
        yield _product(f"{n} x {n} @ {n} x {n}", n, n, n)
    yield _product("128 x 784 @ 784 x 256", 128, 784, 256)
    right, left = (lambda x, y: x @ y.mT), (lambda x, y: x.mT @ y)
    yield _product("128 x 784 @ (256 x 784).T", 128, 784, 256, right, b=(256, 784))
    yield _product("(128 x 784).T @ 128 x 256", 784, 128, 256, left, a=(128, 784))
    for rows in (2, 3):
        yield _product(f"{rows} x 784 @ 784 x 256", rows, 784, 256, goal=1.0)
    yield _product("768 x 128 @ 128 x 512", 768, 128, 512, goal=1.0)
    yield _product("48 of 64 x 32 @ 32 x 64", 64, 32, 64, batch=(48,), goal=1.0)
    yield _product("64 of 64 x 64 @ 64 x 64", 64, 64, 64, batch=(64,), goal=0.6)
    for kind in ("float32", "float64"):  # whose limit is another
        how = partial(simple, dtype=kind)
        name, shapes = f"3620 x 3620 @ 3620 x 3620, {kind}", [(3620, 3620)] * 2
        yield timed("matmul", name, operator.matmul, shapes, 0, 1.0, how=how)


def _product(
    name: str,
    m: int,
    k: int,
    n: int,
    op: Callable = operator.matmul,
    batch: tuple[int, ...] = (),
    a: tuple[int, ...] = (),
    b: tuple[int, ...] = (),
    goal: float = 0.5,
) -> Case:
    """A product [*, M, K] @ [*, K, N]; a and b, if given, are how the operands lie."""
    shapes = [a or (*batch, m, k), b or (*batch, k, n)]
    flops = 2.0 * prod(batch) * m * n * k
    moved = 4.0 * prod(batch) * (m * k + k * n + m * n)
    return timed("matmul", name, op, shapes, moved, goal, flops=flops)


# ----------------------------------------------------------------------- elementwise


def elementwise_cases() -> Iterator[Case]:
    """Operations on every element, contiguous and not."""
    case, gelu = partial(timed, "elementwise"), torch_module().nn.functional.gelu
    add, small = operator.add, 100_000
    for text, n, goal in (("1e5", small, 1.0), ("1e7", 100 * small, 0.35)):
        yield case(f"add {text}", add, [(n,), (n,)], 12.0 * n, goal, flops=n)
        relu = operator.methodcaller("relu")
        yield case(f"relu {text}", relu, [(n,)], 8.0 * n, goal, flops=n)
    for name in ("exp", "tanh", "sigmoid", "gelu"):
        op, theirs = operator.methodcaller(name), gelu if name == "gelu" else None
        yield case(f"{name} 1e5", op, [(small,)], 8.0 * small, 0.35, theirs=theirs)
    flipped = lambda x, y: x + y.T
    for text, rows, cols in (("1e5", 250, 400), ("1e7", 2500, 4000)):
        shape, moved = (rows, cols), 8.0 * rows * cols
        yield case(f"add a row {text}", add, [shape, (cols,)], moved)
        yield case(f"add a column {text}", add, [shape, (rows, 1)], moved)
        other = [shape, (cols, rows)]
        yield case(f"add a transposed {text}", flipped, other, 1.5 * moved)


# ------------------------------------------------------------------------ reductions


def reduce_cases() -> Iterator[Case]:
    """Sums and maxima over all, the last and the first dimension."""
    for text, shape in (
        ("1e5", (250, 400)), ("1e6", (1000, 1000)), ("1e7", (2500, 4000))
    ):  # fmt: skip
        for where, dim in (("all", None), ("last", 1), ("first", 0)):
            for name in ("sum", "max"):
                title = f"{name} over {where} {text}"
                op, moved = _reduction(name, dim), 4.0 * prod(shape)
                yield timed("reduce", title, op, [shape], moved, reads=True)


def _reduction(name: str, dim: int | None) -> Callable:
    if name == "sum":
        return lambda x: x.sum() if dim is None else x.sum(dim)
    return lambda x: x.max() if dim is None else x.amax(dim)


# ----------------------------------------------------------- softmax, normalization


def fused_cases() -> Iterator[Case]:
    """Softmax, layer norm and cross-entropy, forward and with backward."""
    TF = torch_module().nn.functional
    softmax, rows, cols = (lambda x: x.softmax(-1)), 1024, 1024
    norms = [partial(_layer_norm, library, cols) for library in (F, TF)]
    shapes, size = [(rows, cols), (cols,), (cols,)], 4.0 * rows * cols
    for name, family, ops, inputs in (
        ("softmax 1024 x 1024", "softmax", [softmax, softmax], shapes[:1]),
        ("layer norm 1024 x 1024", "norm", norms, shapes),
    ):
        yield from _with_backward(family, name, ops, inputs, 2 * size, 5 * size)
    for n, classes in ((512, 10), (1024, 1024)):
        their_labels = torch_module().arange(n) * 7 % classes
        labels = on_our_side(their_labels)
        losses: list[Callable] = [
            lambda x, y=labels: F.cross_entropy(x, y),
            lambda x, y=their_labels: TF.cross_entropy(x, y),
        ]
        name, size = f"softmax + cross-entropy {n} x {classes}", 4.0 * n * classes
        inputs = [(n, classes)]
        yield from _with_backward("softmax", name, losses, inputs, size, 3 * size)


def _layer_norm(library: Any, n: int, x: Any, weight: Any, bias: Any) -> Any:
    return library.layer_norm(x, (n,), weight, bias)


def _with_backward(
    family: str, name: str, ops: Any, shapes: Any, moved: float, moved_by_both: float
) -> Iterator[Case]:
    """An operation, and it with its backward pass; `ops` are ours and PyTorch's."""
    op, theirs = ops
    yield timed(family, name, op, shapes, moved, 0.6, theirs=theirs)
    yield timed(
        family, f"{name}, with backward", op, shapes, moved_by_both, 0.6,
        theirs=theirs, how=forward_and_backward, agree=None,
    )  # fmt: skip


# ------------------------------------------------------------------------- attention


def attention_cases() -> Iterator[Case]:
    """Causal attention as small GPTs have it, forward and with backward.

    Keys that a query does not see are no work, and the backward pass is five products
    where the forward pass is two.
    """
    op = partial(F.scaled_dot_product_attention, is_causal=True)
    theirs = partial(
        torch_module().nn.functional.scaled_dot_product_attention, is_causal=True
    )
    for shape in ((64, 6, 256, 64), (8, 12, 1024, 64)):
        name = f"attention {' x '.join(map(str, shape))}"
        flops, size = 2.0 * prod(shape) * shape[2], 4.0 * prod(shape)
        for text, times, moved, how in (
            ("", 1.0, 4 * size, simple),
            (", with backward", 3.5, 12 * size, forward_and_backward),
        ):
            yield timed(
                "attention", name + text, op, [shape] * 3, moved, 0.9, theirs=theirs,
                flops=times * flops, how=how, agree=None if text else nearly_equal,
            )  # fmt: skip


# ----------------------------------------------------------------------- convolution


def conv_cases() -> Iterator[Case]:
    """The convolutions of small networks, forward and backward by itself."""
    for c, o in ((1, 16), (16, 32)):
        for k in (3, 5):
            name = f"conv2d {c} -> {o}, {k} x {k}"
            yield from convolution(name, 64, c, 28, o, k, (1.1, 0.9), bias=True)


def convolution(
    name: str,
    n: int,
    c: int,
    size: int,
    o: int,
    k: int,
    goals: tuple[float, float],
    bias: bool = False,
) -> Iterator[Case]:
    """x [N, C, size, size] with a weight [O, C, K, K], forward, and backward."""
    functional = torch_module().nn.functional
    op = lambda x, w, b=None: F.conv2d(x, w, b, padding=k // 2)
    theirs = lambda x, w, b=None: functional.conv2d(x, w, b, padding=k // 2)
    shapes = [(n, c, size, size), (o, c, k, k), *([(o,)] if bias else [])]
    flops = 2.0 * n * o * c * k * k * size * size
    moved = 4.0 * n * size * size * (c + o)
    for text, how, times, goal in (
        ("forward", simple, 1, goals[0]), ("backward", backward, 2, goals[1])
    ):  # fmt: skip
        yield timed(
            "conv", f"{name}, {text}", op, shapes, times * moved, goal, theirs=theirs,
            flops=times * flops, how=how,
        )  # fmt: skip


# --------------------------------------------------------------------------- sparse


def sparse_cases(n: int = 4096, goal: float = 0.6) -> Iterator[Case]:
    """Products of a sparse matrix in CSR form with a dense one."""
    for percent in (10, 1):
        nnz = n * n * percent / 100
        yield Case(
            "sparse", f"CSR {n} x {n} at {percent} % @ {n} x 128",
            partial(_sparse_product, n, percent / 100), 2 * nnz * 128,
            8 * nnz + 8.0 * n * 128, goal, agree=nearly_equal,
        )  # fmt: skip


def _sparse_product(n: int, density: float) -> Pair:
    ours, theirs, (b, their_b) = sparse_operands(n, density, (n, 128))
    return lambda: ours @ b, lambda: theirs @ their_b


# -------------------------------------------------------------- optimizers and steps


def optimizer_cases() -> Iterator[Case]:
    """One step of Adam and AdamW on a small and on a large set of parameters."""
    torch = torch_module()
    small = [(784, 256), (256,), (256, 128), (128,), (128, 10), (10,)]
    for text, shapes, goal in (
        ("235k", small, 0.5), ("1e7", [(2500, 4000)], 1.0)
    ):  # fmt: skip
        for name, our_class, their_class in (
            ("Adam", optim.Adam, torch.optim.Adam),
            ("AdamW", optim.AdamW, torch.optim.AdamW),
        ):
            build = partial(optimizer_steps, shapes, our_class, their_class)
            count = sum(map(prod, shapes))
            yield Case("optim", f"{name} {text}", build, 0, 28.0 * count, goal)


def optimizer_steps(
    shapes: Sequence[tuple[int, ...]], our_class: Any, their_class: Any
) -> Pair:
    """Steps on parameters of these shapes, with gradients of 1."""
    ours, theirs = both(*shapes, grad=True)
    for mine, other in zip(ours, theirs):
        mine.grad = mt.ones_like(mine)
        other.grad = torch_module().ones_like(other)
    return our_class(ours).step, their_class(theirs, fused=True).step


CPU_NETWORKS = ("MLP 784-256-128-10", "LeNet-5")


def networks(library: Any) -> dict[str, Callable[[], Any]]:
    """Networks by name, built from the `nn` of either library."""
    return {
        "MLP 784-256-128-10": lambda: library.Sequential(
            library.Flatten(), library.Linear(784, 256), library.ReLU(),
            library.Linear(256, 128), library.ReLU(), library.Linear(128, 10),
        ),
        "LeNet-5": lambda: library.Sequential(
            library.Conv2d(1, 6, 5, padding=2), library.ReLU(), library.MaxPool2d(2),
            library.Conv2d(6, 16, 5), library.ReLU(), library.MaxPool2d(2),
            library.Flatten(), library.Linear(400, 120), library.ReLU(),
            library.Linear(120, 84), library.ReLU(), library.Linear(84, 10),
        ),
        "CNN of PyTorch's MNIST example": lambda: library.Sequential(
            library.Conv2d(1, 32, 3), library.ReLU(),
            library.Conv2d(32, 64, 3), library.ReLU(),
            library.MaxPool2d(2), library.Dropout(0.25), library.Flatten(),
            library.Linear(9216, 128), library.ReLU(), library.Dropout(0.5),
            library.Linear(128, 10),
        ),
    }  # fmt: skip


def step_cases() -> Iterator[Case]:
    """Whole training steps: forward, backward, Adam."""
    for name in CPU_NETWORKS:
        for batch in (64, 512):
            build = partial(eager_steps, partial(twins, name), (batch, 1, 28, 28))
            yield Case("step", f"{name}, batch {batch}", build, goal=0.6)


Networks = Callable[[], tuple[Any, Any]]


def eager_steps(networks: Networks, shape: tuple[int, ...]) -> Pair:
    """A training step of ours and of PyTorch's, started kernel by kernel."""
    (step, x, y), (their_step, their_x, their_y) = steps_of(networks, shape)
    return lambda: step(x, y), lambda: their_step(their_x, their_y)


def steps_of(networks: Networks, shape: tuple[int, ...], **options: Any) -> Any:
    """The step and a batch, ours and PyTorch's; `options` are for PyTorch's Adam."""
    torch = torch_module()
    mine, other = networks()
    mine, other = mine.to(our_device()), other.to(their_device())
    (x,), (their_x,) = both(shape)
    their_y = torch.arange(len(their_x), device=their_device()) % 10
    adam = torch.optim.Adam(other.parameters(), **options)
    step = train_step(mine, optim.Adam(mine.parameters()), F)
    their_step = train_step(other, adam, torch.nn.functional)
    return (step, x, on_our_side(their_y)), (their_step, their_x, their_y)


def twins(name: str) -> tuple[Any, Any]:
    """A network of ours and the same one of PyTorch's, with the same weights."""
    mine, other = networks(nn)[name](), networks(torch_module().nn)[name]()
    for p, q in zip(mine.parameters(), other.parameters()):
        p.data.copy_(mt.tensor(q.detach().numpy()))
    return mine, other


def train_step(model: Any, optimizer: Any, functional: Any) -> Callable[..., None]:
    """step(x, y) of either library."""

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "matmul": matmul_cases,
    "elementwise": elementwise_cases,
    "tiny": tiny_cases,
    "reduce": reduce_cases,
    "fused": fused_cases,
    "conv": conv_cases,
    "attention": attention_cases,
    "sparse": sparse_cases,
    "optim": optimizer_cases,
    "step": step_cases,
    "epoch": epoch_cases,
    "compile": compile_cases,
}
EXTRA = ("compile",)  # families that need a compiler for PyTorch: only when named


def all_cases(families: list[str] | None = None) -> Iterator[Case]:
    """The cases of the named families, or of all but `EXTRA`.

    Raises:
        ValueError: there is no family of that name.
    """
    for name in families or [name for name in FAMILIES if name not in EXTRA]:
        if name not in FAMILIES:
            raise ValueError(
                f"bench: there is no family {name!r}; choose from {', '.join(FAMILIES)}"
            )
        yield from FAMILIES[name]()


# --------------------------------------------------------------------------- ladders


# Rows of a ladder's square matrices.
LADDER_SIZES = {"matmul": 512, "reduce": 4096, "softmax": 2048, "sparse": 8192}


def ladder_cases(family: str, size: int | None = None) -> Iterator[Case]:
    """The rungs of a ladder, each against PyTorch on square matrices of `size` rows.

    The results are compared as well: a ladder may hold a rung that is wrong on purpose.
    A sum takes more memory than caches hold, unless `size` says otherwise. The rung
    `in_chunks` of softmax is for fewer rows than threads: it loses.

    Raises:
        ValueError: the family has no ladder.
    """
    from fast_ops import matmul, reduce_ladder, softmax_ladder, sparse_ladder

    if family not in LADDER_SIZES:
        ladders = ", ".join(LADDER_SIZES)
        raise ValueError(f"bench: {family!r} has no ladder; {ladders} have")
    n = size or LADDER_SIZES[family]
    if family == "sparse":
        return sparse_rungs(sparse_ladder.LADDER, n, [(n,)], 12)
    ladders_of = {
        "matmul": matmul.LADDER,
        "reduce": reduce_ladder.LADDER,
        "softmax": softmax_ladder.LADDER,
    }
    return rungs_of(family, ladders_of[family], n, reduce_ladder.WRONG)


def mojo_ladder(family: str, size: int | None = None) -> Iterator[Case]:
    """The rungs of the matmul ladder in Numba, and those in Mojo.

    Raises:
        ValueError: Mojo has no ladder of that family.
    """
    from fast_ops.matmul import LADDER as NUMBA
    from mojo_ops.matmul import LADDER as MOJO

    if family != "matmul":
        raise ValueError(f"bench: {family!r} has no ladder in Mojo; matmul has")
    for rungs, compiler in ((NUMBA, "Numba"), (MOJO, "Mojo")):
        for case in rungs_of(family, rungs, size or LADDER_SIZES[family]):
            yield replace(case, name=f"{case.name}, {compiler}")


ON_TENSOR_CORES = "matmul_tensor_core", "matmul_warpgroup", "matmul_split"


def rungs_of(
    family: str, rungs: Iterable[Callable], n: int, wrong: Sequence[Callable] = ()
) -> Iterator[Case]:
    """Launchers that take raw matrices [n, n], each against PyTorch's function.

    Args:
        wrong: those of the rungs that are wrong on purpose.
    """
    torch = torch_module()
    op, flops, moved = {
        "matmul": (torch.matmul, 2.0 * n**3, 12.0 * n * n),
        "reduce": (torch.sum, 0.0, 4.0 * n * n),
        "softmax": (lambda x: x.softmax(-1), 0.0, 8.0 * n * n),
        "transpose": (lambda x: x.T.contiguous(), 0.0, 8.0 * n * n),
    }[family]
    shapes = [(n, n)] * (2 if family == "matmul" else 1)
    for rung in rungs:
        # Numbers from 0 to 1 for sums: updates that get lost do not cancel each other.
        build = partial(on_raw, rung, op, shapes, positive=family == "reduce")
        yield Case(
            family, rung.__name__, build, flops, moved, reads=family == "reduce",
            agree=nearly_equal, wrong=rung in wrong,
            tensor=rung.__name__ in ON_TENSOR_CORES,
        )  # fmt: skip


def sparse_rungs(
    rungs: Iterable[Callable], n: int, shapes: Sequence[tuple[int, ...]], each: int
) -> Iterator[Case]:
    """A sparse matrix [n, n], of which 1 % is not zero, times dense ones.

    Then the same with long rows: in one of 1,024 nothing is zero.

    Args:
        each: bytes that are read for an element of the sparse matrix.
    """
    rungs = list(rungs)
    for full, skewed in ((0, ""), (max(1, n // 1024), ", long rows")):
        nnz = full * n + (n - full) * n / 100
        for dense in shapes:
            columns = prod(dense[1:])
            text = f"{', a vector' if dense == (n, 1) else ''}{skewed}"
            flops, moved = 2 * nnz * columns, each * nnz + 8.0 * n * columns
            for rung in rungs:
                yield Case(
                    "sparse", f"{rung.__name__}{text}",
                    partial(_sparse_rung, rung, n, dense, full), flops, moved,
                    agree=nearly_equal,
                )  # fmt: skip


def _sparse_rung(rung: Callable, n: int, dense: tuple[int, ...], full: int) -> Pair:
    ours, theirs, (b, their_b) = sparse_operands(n, 0.01, dense, full)
    parts = ours.crow_indices().raw, ours.col_indices().raw, ours.values().raw
    return lambda: rung(*parts, b.raw), lambda: theirs @ their_b
