"""What is timed: each family at the sizes that matter, and whole training steps.

With this file one can list the cases (`all_cases`), and add one: a case builds its
inputs when it is run, the same numbers for both sides, and returns the two functions
to time. A case knows how many operations and bytes it needs at least, so that a time
can be read as a share of the machine's limit, and the goal that it has to meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import minitorch as mt
import minitorch.nn as nn
import minitorch.nn.functional as F
import minitorch.optim as optim
from minitorch.bench.harness import Timing

Pair = tuple[Callable[[], object], Callable[[], object]]


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        family: "matmul", "reduce", ...
        name: what is done, with its sizes.
        build: makes the inputs and returns (ours, PyTorch's).
        flops: floating-point operations of one call, 0 if they do not matter.
        bytes: bytes that must be read and written at least, 0 if they do not matter.
        reads: whether those bytes are only read, which is faster than writing.
        goal: the largest ratio (our time / PyTorch's) to be content with.
        agree: says of (our result, PyTorch's) whether ours is right; None: not checked.
        wrong: known to be wrong, even if some results are right by luck.
        compare: times the two, if they need another way than others on the device.
    """

    family: str
    name: str
    build: Callable[[], Pair]
    flops: float = 0.0
    bytes: float = 0.0
    goal: float = 1.0
    reads: bool = False
    agree: Callable[[Any, Any], bool] | None = None
    wrong: bool = False
    compare: Callable[..., Timing] | None = None


def torch_module() -> Any:
    """PyTorch, the rival; an error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise RuntimeError(
            "the benchmark compares with PyTorch, which is not installed; run: "
            "pip install -e '.[course]'"
        ) from None
    return torch


_host = {"device": "cpu"}


def put_inputs_on(device: str) -> None:
    """Let our tensors be on "cpu" or on "mojo", whose memory is the host's, too."""
    _host["device"] = device


def host_tensor(array: np.ndarray, grad: bool = False) -> Any:
    """An array as a tensor of ours, on the device that is timed."""
    return mt.tensor(array, device=_host["device"], requires_grad=grad)


def both(*shapes: tuple[int, ...], grad: bool = False) -> tuple[list[Any], list[Any]]:
    """The same normal numbers as our tensors and as PyTorch's."""
    torch = torch_module()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    ours = [host_tensor(a, grad) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=grad) for a in arrays]
    return ours, theirs


Both = Callable[..., tuple[list[Any], list[Any]]]  # what `both` is


def simple(op: Callable, their_op: Callable, *shapes: tuple[int, ...]) -> Pair:
    """A function of tensors, without recording."""
    torch = torch_module()
    ours, theirs = both(*shapes)

    def we() -> object:
        with mt.no_grad():
            return op(*ours)

    def they() -> object:
        with torch.no_grad():
            return their_op(*theirs)

    return we, they


# ---------------------------------------------------------------------------- matmul


def matmul_cases() -> Iterator[Case]:
    """Square and oblong products, transposed operands, and a batch."""
    for n in (256, 512, 1024, 2048):
        yield _product(f"{n} x {n} @ {n} x {n}", (n, n), (n, n), 0.50)
    yield _product("128 x 784 @ 784 x 256", (128, 784), (784, 256), 0.50)
    yield _product("128 x 784 @ (256 x 784).T", (128, 784), (256, 784), 0.50, "right")
    yield _product("(128 x 784).T @ 128 x 256", (128, 784), (128, 256), 0.50, "left")
    yield _product("64 of 64 x 64 @ 64 x 64", (64, 64, 64), (64, 64, 64), 0.6)


def _product(
    name: str, a: tuple[int, ...], b: tuple[int, ...], goal: float, flip: str = ""
) -> Case:
    def run(x: Any, y: Any) -> Any:
        x = x.mT if flip == "left" else x
        return x @ (y.mT if flip == "right" else y)

    m, k = (a[-1], a[-2]) if flip == "left" else (a[-2], a[-1])
    n = b[-2] if flip == "right" else b[-1]
    batch = a[0] if len(a) == 3 else 1
    flops = 2.0 * batch * m * n * k
    moved = 4.0 * batch * (m * k + k * n + m * n)
    return Case("matmul", name, lambda: simple(run, run, a, b), flops, moved, goal)


# ----------------------------------------------------------------------- elementwise


def elementwise_cases() -> Iterator[Case]:
    """Operations on every element, contiguous and not."""
    n, big = 100_000, 10_000_000
    torch = torch_module()
    add = lambda x, y: x + y
    relu = lambda x: x.relu()
    yield Case(
        "elementwise", "add 1e5", lambda: simple(add, add, (n,), (n,)), n, 12 * n
    )
    yield Case("elementwise", "relu 1e5", lambda: simple(relu, relu, (n,)), n, 8 * n)
    yield Case(
        "elementwise", "add 1e7", lambda: simple(add, add, (big,), (big,)),
        big, 12 * big, 0.35,
    )  # fmt: skip
    yield Case(
        "elementwise",
        "relu 1e7",
        lambda: simple(relu, relu, (big,)),
        big,
        8 * big,
        0.35,
    )
    named: list[tuple[str, Callable, Callable]] = [
        ("exp", lambda x: x.exp(), lambda x: x.exp()),
        ("tanh", lambda x: x.tanh(), lambda x: x.tanh()),
        ("sigmoid", lambda x: x.sigmoid(), lambda x: x.sigmoid()),
        ("gelu", lambda x: x.gelu(), torch.nn.functional.gelu),
    ]
    for name, op, their_op in named:
        yield Case(
            "elementwise", f"{name} 1e5",
            partial(simple, op, their_op, (n,)),
            0, 8 * n, 0.35,
        )  # fmt: skip
    for text, rows, cols in (("1e5", 250, 400), ("1e7", 2500, 4000)):
        yield from _broadcasts(text, rows, cols, add)


def _broadcasts(text: str, rows: int, cols: int, add: Callable) -> Iterator[Case]:
    shape, moved = (rows, cols), 8.0 * rows * cols
    flipped = lambda x, y: x + y.T
    yield Case(
        "elementwise", f"add a row {text}",
        lambda: simple(add, add, shape, (cols,)), 0, moved,
    )  # fmt: skip
    yield Case(
        "elementwise", f"add a column {text}",
        lambda: simple(add, add, shape, (rows, 1)), 0, moved,
    )  # fmt: skip
    yield Case(
        "elementwise", f"add a transposed {text}",
        lambda: simple(flipped, flipped, shape, (cols, rows)), 0, 1.5 * moved,
    )  # fmt: skip


# ------------------------------------------------------------------------ reductions


def reduce_cases() -> Iterator[Case]:
    """Sums and maxima over all, the last and the first dimension."""
    for text, rows, cols in (
        ("1e5", 250, 400), ("1e6", 1000, 1000), ("1e7", 2500, 4000)
    ):  # fmt: skip
        for where, dim in (("all", None), ("last", 1), ("first", 0)):
            for name in ("sum", "max"):
                op = _reduction(name, dim)
                yield Case(
                    "reduce", f"{name} over {where} {text}",
                    partial(simple, op, op, (rows, cols)),
                    0, 4.0 * rows * cols, reads=True,
                )  # fmt: skip


def _reduction(name: str, dim: int | None) -> Callable:
    if name == "sum":
        return lambda x: x.sum() if dim is None else x.sum(dim)
    return lambda x: x.max() if dim is None else x.amax(dim)


# ----------------------------------------------------------- softmax, normalization


def forward_and_backward(
    op: Callable, their_op: Callable, *shapes: tuple[int, ...]
) -> Pair:
    """A recorded function and its backward pass."""
    ours, theirs = both(*shapes, grad=True)
    with mt.no_grad():
        like = op(*ours)
    (up,), (their_up,) = both(tuple(like.shape))

    def we() -> None:
        for x in ours:
            x.grad = None
        op(*ours).backward(up)

    def they() -> None:
        for x in theirs:
            x.grad = None
        their_op(*theirs).backward(their_up)

    return we, they


def fused_cases() -> Iterator[Case]:
    """Softmax, layer norm and cross-entropy, forward and with backward."""
    torch = torch_module()
    TF = torch.nn.functional
    rows, cols = 1024, 1024
    softmax = lambda x: x.softmax(-1)
    norm = lambda x, w, b: F.layer_norm(x, (cols,), w, b)
    their_norm = lambda x, w, b: TF.layer_norm(x, (cols,), w, b)
    shapes = ((rows, cols), (cols,), (cols,))
    size = 4.0 * rows * cols
    yield Case(
        "softmax", "softmax 1024 x 1024",
        lambda: simple(softmax, softmax, (rows, cols)), 0, 2 * size, 0.6,
    )  # fmt: skip
    yield Case(
        "softmax", "softmax 1024 x 1024, with backward",
        lambda: forward_and_backward(softmax, softmax, (rows, cols)), 0, 5 * size, 0.6,
    )  # fmt: skip
    yield Case(
        "norm", "layer norm 1024 x 1024",
        lambda: simple(norm, their_norm, *shapes), 0, 2 * size, 0.6,
    )  # fmt: skip
    yield Case(
        "norm", "layer norm 1024 x 1024, with backward",
        lambda: forward_and_backward(norm, their_norm, *shapes), 0, 5 * size, 0.6,
    )  # fmt: skip
    for n, classes in ((512, 10), (1024, 1024)):
        yield from _cross_entropy(n, classes)


def _cross_entropy(n: int, classes: int) -> Iterator[Case]:
    torch = torch_module()
    labels = np.random.default_rng(1).integers(0, classes, n)
    ours, theirs = host_tensor(labels), torch.tensor(labels)
    op = lambda x: F.cross_entropy(x, ours)
    their_op = lambda x: torch.nn.functional.cross_entropy(x, theirs)
    size = 4.0 * n * classes
    yield Case(
        "softmax", f"softmax + cross-entropy {n} x {classes}",
        lambda: simple(op, their_op, (n, classes)), 0, size, 0.6,
    )  # fmt: skip
    yield Case(
        "softmax", f"softmax + cross-entropy {n} x {classes}, with backward",
        lambda: forward_and_backward(op, their_op, (n, classes)), 0, 3 * size, 0.6,
    )  # fmt: skip


# ----------------------------------------------------------------------- convolution


def conv_cases() -> Iterator[Case]:
    """The convolutions of small networks, forward and backward by itself."""
    for channels, out in ((1, 16), (16, 32)):
        for k in (3, 5):
            yield from _conv(channels, out, k)


def _conv(channels: int, out: int, k: int) -> Iterator[Case]:
    torch = torch_module()
    n, size = 64, 28
    shapes = ((n, channels, size, size), (out, channels, k, k), (out,))
    moved = 4.0 * n * size * size * (channels + out)
    flops = 2.0 * n * out * channels * k * k * size * size
    op = lambda x, w, b: F.conv2d(x, w, b, padding=k // 2)
    their_op = lambda x, w, b: torch.nn.functional.conv2d(x, w, b, padding=k // 2)
    name = f"conv2d {channels} -> {out}, {k} x {k}"
    yield Case(
        "conv", f"{name}, forward",
        lambda: simple(op, their_op, *shapes), flops, moved, 1.1,
    )  # fmt: skip

    def backward() -> Pair:
        ours, theirs = both(*shapes, grad=True)
        (up,), (their_up,) = both((n, out, size, size))
        y, their_y = op(*ours), their_op(*theirs)

        def we() -> object:
            return mt.grad(y, ours, up, retain_graph=True)

        def they() -> object:
            return torch.autograd.grad(their_y, theirs, their_up, retain_graph=True)

        return we, they

    yield Case("conv", f"{name}, backward", backward, 2 * flops, 2 * moved, 0.9)


# --------------------------------------------------------------------------- sparse


def sparse_cases() -> Iterator[Case]:
    """Products of a sparse matrix in CSR form with a dense one."""
    for percent in (10, 1):

        def build(percent: int = percent) -> Pair:
            torch = torch_module()
            rng = np.random.default_rng(0)
            keep = rng.random((4096, 4096)) < percent / 100
            a = np.where(keep, rng.standard_normal(keep.shape), 0).astype(np.float32)
            (b,), (their_b,) = both((4096, 128))
            ours = host_tensor(a).to_sparse_csr()
            theirs = torch.tensor(a).to_sparse_csr()
            return lambda: ours @ b, lambda: theirs @ their_b

        nnz = 4096 * 4096 * percent / 100
        yield Case(
            "sparse", f"CSR 4096 x 4096 at {percent} % @ 4096 x 128", build,
            2 * nnz * 128, 8 * nnz + 8.0 * 4096 * 128, 0.6,
        )  # fmt: skip


# -------------------------------------------------------------- optimizers and steps


def optimizer_cases(both: Both = both) -> Iterator[Case]:
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
            build = partial(optimizer_steps, both, shapes, our_class, their_class)
            count = sum(int(np.prod(s)) for s in shapes)
            yield Case("optim", f"{name} {text}", build, 0, 28.0 * count, goal)


def optimizer_steps(
    both: Both, shapes: Sequence[tuple[int, ...]], our_class: Any, their_class: Any
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
    torch = torch_module()
    for name in CPU_NETWORKS:
        for batch in (64, 512):

            def build(name: str = name, batch: int = batch) -> Pair:
                mine, other = twins(name)
                mine.to(_host["device"])
                (x,), (their_x,) = both((batch, 1, 28, 28))
                labels = np.arange(batch) % 10
                y, their_y = host_tensor(labels), torch.tensor(labels)
                we = train_step(mine, optim.Adam(mine.parameters()), F)
                adam = torch.optim.Adam(other.parameters())
                they = train_step(other, adam, torch.nn.functional)
                return lambda: we(x, y), lambda: they(their_x, their_y)

            yield Case("step", f"{name}, batch {batch}", build, goal=0.6)


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


def _tiny_cases() -> Iterator[Case]:
    from minitorch.bench.tiny import tiny_cases  # it needs `Case`, from here

    return tiny_cases(_host["device"])


def _epoch_cases() -> Iterator[Case]:
    from minitorch.bench.epoch import epoch_cases  # it needs `Case`, from here

    return epoch_cases()


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "matmul": matmul_cases,
    "elementwise": elementwise_cases,
    "tiny": _tiny_cases,
    "reduce": reduce_cases,
    "fused": fused_cases,
    "conv": conv_cases,
    "sparse": sparse_cases,
    "optim": optimizer_cases,
    "step": step_cases,
    "epoch": _epoch_cases,
}


def all_cases(families: list[str] | None = None) -> Iterator[Case]:
    """The cases of the named families, or of all.

    Raises:
        ValueError: there is no family of that name.
    """
    for name in families or list(FAMILIES):
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
    A sum takes more memory than caches hold, unless `size` says otherwise.

    Raises:
        ValueError: the family has no ladder.
    """
    if family not in LADDER_SIZES:
        ladders = ", ".join(LADDER_SIZES)
        raise ValueError(f"bench: {family!r} has no ladder; {ladders} have")
    rungs: dict[str, Callable[[int], Iterator[Case]]] = {
        "matmul": _matmul_ladder,
        "reduce": _reduce_ladder,
        "softmax": _softmax_ladder,
        "sparse": _sparse_ladder,
    }
    return rungs[family](size or LADDER_SIZES[family])


def _matmul_ladder(size: int) -> Iterator[Case]:
    from fast_ops.matmul import LADDER

    for rung in LADDER:
        yield _matmul_rung(rung, rung.__name__, size)


def mojo_ladder(family: str, size: int | None = None) -> Iterator[Case]:
    """The rungs of the matmul ladder in Numba, and those in Mojo.

    Raises:
        ValueError: Mojo has no ladder of that family.
    """
    from fast_ops.matmul import LADDER as NUMBA
    from mojo_ops.matmul import LADDER as MOJO

    if family != "matmul":
        raise ValueError(f"bench: {family!r} has no ladder in Mojo; matmul has")
    size = size or LADDER_SIZES[family]
    for rungs, compiler in ((NUMBA, "Numba"), (MOJO, "Mojo")):
        for rung in rungs:
            yield _matmul_rung(rung, f"{rung.__name__}, {compiler}", size)


def _matmul_rung(rung: Callable, name: str, size: int) -> Case:
    def build() -> Pair:
        torch = torch_module()
        (a, b), (their_a, their_b) = both((size, size), (size, size))
        return lambda: rung(a.raw, b.raw), lambda: torch.matmul(their_a, their_b)

    flops, moved = 2.0 * size**3, 12.0 * size * size
    return Case("matmul", name, build, flops, moved, agree=nearly_equal)


def _reduce_ladder(size: int) -> Iterator[Case]:
    from fast_ops.reduce_ladder import LADDER, WRONG

    for rung in LADDER:

        def build(rung: Callable = rung) -> Pair:
            torch = torch_module()
            # From 0 to 1: updates that get lost do not cancel each other.
            x = np.random.default_rng(0).random((size, size), dtype=np.float32)
            ours, theirs = mt.tensor(x), torch.tensor(x)
            return lambda: rung(ours.raw), lambda: torch.sum(theirs)

        moved = 4.0 * size * size
        yield Case(
            "reduce", rung.__name__, build, 0, moved,
            agree=nearly_equal, wrong=rung in WRONG, reads=True,
        )  # fmt: skip


def _softmax_ladder(size: int) -> Iterator[Case]:
    """Softmax of each row. `in_chunks` is for fewer rows than threads: it loses."""
    from fast_ops.softmax_ladder import LADDER

    for rung in LADDER:

        def build(rung: Callable = rung) -> Pair:
            (x,), (theirs,) = both((size, size))
            return lambda: rung(x.raw), lambda: theirs.softmax(-1)

        moved = 8.0 * size * size
        yield Case("softmax", rung.__name__, build, 0, moved, agree=nearly_equal)


def _sparse_ladder(size: int) -> Iterator[Case]:
    """A sparse matrix, of which 1 % is not zero, times a vector."""
    from fast_ops.sparse_ladder import LADDER

    for rung in LADDER:

        def build(rung: Callable = rung) -> Pair:
            a = np.random.default_rng(0).random((size, size), dtype=np.float32)
            theirs = torch_module().tensor(np.where(a < 0.01, a, 0)).to_sparse_csr()
            (x,), (their_x,) = both((size,))
            parts = (theirs.crow_indices(), theirs.col_indices(), theirs.values())
            ours = [mt.tensor(part.numpy()).raw for part in parts]
            return lambda: rung(*ours, x.raw), lambda: theirs @ their_x

        elements = 0.01 * size * size
        flops, moved = 2 * elements, 12 * elements + 8.0 * size
        yield Case("sparse", rung.__name__, build, flops, moved, agree=nearly_equal)


def nearly_equal(ours: Any, theirs: Any) -> bool:
    """Whether our raw result is PyTorch's, up to a thousandth of its largest element.

    Wide enough for every order of float32 additions; a lost part is far larger.
    """
    from fast_ops.memory import to_numpy

    expected = theirs.numpy()
    error = np.abs(to_numpy(ours) - expected).max(initial=0)
    return bool(error <= 1e-3 * np.abs(expected).max(initial=0))
