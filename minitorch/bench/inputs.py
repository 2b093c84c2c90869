"""What a case is, and the inputs that it makes for both libraries.

With this file a case (`Case`) can make the same numbers for both sides (`both`), on the
device that `put_inputs_on` names, and turn two functions of tensors into what is timed
(`simple`, `backward`, `forward_and_backward`, `on_raw`). On a GPU ours are views of
PyTorch's tensors. In Numba's simulator, where PyTorch has no GPU, its tensors are on
the CPU and ours are copies: so tests can run the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import minitorch as mt
from minitorch.backend.registry import install
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
        tensor: whether tensor cores multiply, whose limit is another one.
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
    tensor: bool = False


def torch_module() -> Any:
    """PyTorch, the rival; an error that says how to get it."""
    try:
        import torch
    except ImportError:
        raise RuntimeError(
            "the benchmark compares with PyTorch, which is not installed; run: "
            f"{install('course')}"
        ) from None
    return torch


# ----------------------------------------------------------------------- the inputs

_ours = {"device": "cpu"}


def put_inputs_on(device: str) -> None:
    """Let our tensors be on "cpu", on "mojo" or on "cuda"."""
    _ours["device"] = device


def our_device() -> str:
    """Where our tensors are."""
    return _ours["device"]


def their_device() -> str:
    """Where PyTorch's tensors are."""
    if our_device() != "cuda":
        return "cpu"
    from cuda_ops.simulator import SIMULATED

    return "cpu" if SIMULATED else "cuda"


def on_our_side(theirs: Any) -> Any:
    """Our tensor with PyTorch's numbers; on a GPU it has the same memory."""
    if their_device() == "cuda":
        return mt.from_dlpack(theirs)
    return mt.tensor(theirs.numpy(), device=our_device())


def set_up(precision: str = "highest") -> None:
    """Let both compute float32 products in this precision, and convolutions in float32.

    PyTorch's convolutions would use TF32 if not told otherwise; of cuDNN's algorithms
    it takes the fastest.
    """
    torch = torch_module()
    mt.set_float32_matmul_precision(precision)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def both(
    *shapes: tuple[int, ...],
    grad: bool = False,
    positive: bool = False,
    dtype: str = "float32",
) -> tuple[list[Any], list[Any]]:
    """The same numbers as our tensors and as PyTorch's, for products in full precision.

    Args:
        positive: numbers from 0 to 1 instead of normal ones.
    """
    torch = torch_module()
    set_up()
    torch.manual_seed(0)
    draw = torch.rand if positive else torch.randn
    like = {"device": their_device(), "dtype": getattr(torch, dtype)}
    theirs = [draw(shape, **like) for shape in shapes]
    ours = [on_our_side(t) for t in theirs]
    for tensor in (*ours, *theirs) if grad else ():
        tensor.requires_grad_(True)
    return ours, theirs


def sparse_operands(
    n: int, density: float, dense: tuple[int, ...], full: int = 0
) -> tuple[Any, Any, tuple[Any, Any]]:
    """A sparse matrix [n, n] and a dense one of some shape, each ours and PyTorch's.

    Args:
        full: rows of the sparse matrix in which nothing is zero.
    """
    torch = torch_module()
    (b,), (their_b,) = both(dense)
    a = torch.randn(n, n, device=their_device())
    a[full:] *= torch.rand_like(a[full:]) < density
    theirs = a.to_sparse_csr()
    crow, col = theirs.crow_indices(), theirs.col_indices()
    if our_device() == "cuda":  # whose libraries prefer indices of 32 bits
        crow, col = crow.int(), col.int()
        theirs = torch.sparse_csr_tensor(crow, col, theirs.values(), theirs.shape)
    rows, columns, values = map(on_our_side, (crow, col, theirs.values()))
    ours = mt.sparse_csr_tensor(rows, columns, values, (n, n))
    return ours, theirs, (b, their_b)


# ------------------------------------------------------------------ what is timed


def simple(
    op: Callable,
    their_op: Callable,
    *shapes: tuple[int, ...],
    precision: str = "highest",
    dtype: str = "float32",
) -> Pair:
    """A function of tensors, without recording."""
    torch = torch_module()
    ours, theirs = both(*shapes, dtype=dtype)
    set_up(precision)

    def we() -> object:
        with mt.no_grad():
            return op(*ours)

    def they() -> object:
        with torch.no_grad():
            return their_op(*theirs)

    return we, they


def backward(op: Callable, their_op: Callable, *shapes: tuple[int, ...]) -> Pair:
    """The backward pass alone, of a function that was recorded; the first gradient."""
    torch = torch_module()
    ours, theirs = both(*shapes, grad=True)
    y, their_y = op(*ours), their_op(*theirs)
    their_up = torch.randn_like(their_y)
    up = on_our_side(their_up)

    def we() -> object:
        return mt.grad(y, ours, up, retain_graph=True)[0]

    def they() -> object:
        return torch.autograd.grad(their_y, theirs, their_up, retain_graph=True)[0]

    return we, they


def forward_and_backward(
    op: Callable,
    their_op: Callable,
    *shapes: tuple[int, ...],
    precision: str = "highest",
) -> Pair:
    """A recorded function and its backward pass."""
    torch = torch_module()
    ours, theirs = both(*shapes, grad=True)
    set_up(precision)
    their_up = torch.randn_like(their_op(*theirs))

    def steps(op: Callable, tensors: list[Any], up: Any) -> Callable[[], None]:
        def step() -> None:
            for x in tensors:
                x.grad = None
            op(*tensors).backward(up)

        return step

    return steps(op, ours, on_our_side(their_up)), steps(their_op, theirs, their_up)


def on_raw(
    rung: Callable, their_op: Callable, shapes: Sequence[Any], positive: bool = False,
    half: bool = False,
) -> Pair:  # fmt: skip
    """A launcher, which takes raw data, and a function of PyTorch's tensors; `half` is
    for numbers in bfloat16."""
    ours, theirs = both(*shapes, positive=positive)
    if half:
        theirs = [tensor.bfloat16() for tensor in theirs]
        ours = [tensor.bfloat16() for tensor in ours]
    raws = [tensor.raw for tensor in ours]
    return lambda: rung(*raws), lambda: their_op(*theirs)


def nearly_equal(ours: Any, theirs: Any, error: float = 1e-3) -> bool:
    """Whether our result is PyTorch's, up to a thousandth of its largest element.

    Wide enough for every order of float32 additions; a lost part is far larger.
    """
    if not isinstance(ours, mt.Tensor):
        ours = mt.Tensor(ours)  # a ladder's rung gives the raw data
    mine = torch_module().from_dlpack(ours.detach()).reshape(theirs.shape)
    top = float(theirs.abs().max())
    return bool(float((mine - theirs).abs().max()) <= error * top)


# ------------------------------------------------------------------- rows of a table


def timed(
    family: str,
    name: str,
    op: Callable,
    shapes: Sequence[tuple[int, ...]],
    moved: float,
    goal: float = 1.0,
    *,
    theirs: Callable | None = None,
    flops: float = 0.0,
    how: Callable[..., Pair] = simple,
    agree: Callable[[Any, Any], bool] | None = nearly_equal,
    reads: bool = False,
    tensor: bool = False,
) -> Case:
    """The case of one function of tensors, `op`, which PyTorch's may take as well.

    Args:
        theirs: the function for PyTorch's tensors, if it is another one.
        how: makes what is timed of both functions and the shapes.
    """
    build = partial(how, op, theirs or op, *shapes)
    return Case(family, name, build, flops, moved, goal, reads, agree, tensor=tensor)
