"""Inputs for the benchmark on a GPU: one memory, which both libraries use.

With this file a case can make numbers for both sides (`both`), and turn two functions
of tensors into what is timed (`simple`, `backward`). Ours are views of PyTorch's
tensors. In Numba's simulator, where PyTorch has no GPU, its tensors are on the CPU and
ours are copies: so tests can run the cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minitorch as mt
from minitorch.bench.cases import Pair, torch_module


def their_device() -> str:
    """Where PyTorch's tensors are."""
    from cuda_ops.simulator import SIMULATED

    return "cpu" if SIMULATED else "cuda"


def on_our_side(theirs: Any) -> Any:
    """Our tensor on the device "cuda", with the memory of PyTorch's if that can be."""
    if their_device() == "cuda":
        return mt.from_dlpack(theirs)
    return mt.tensor(theirs.numpy(), device="cuda")


def both(*shapes: tuple[int, ...], grad: bool = False) -> tuple[list[Any], list[Any]]:
    """Normal numbers as our tensors and as PyTorch's, in the same memory."""
    torch = torch_module()
    torch.manual_seed(0)
    theirs = [torch.randn(shape, device=their_device()) for shape in shapes]
    ours = [on_our_side(t) for t in theirs]
    for tensor in (*ours, *theirs) if grad else ():
        tensor.requires_grad_(True)
    return ours, theirs


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


def simple(
    op: Callable, their_op: Callable, *shapes: tuple[int, ...],
    precision: str = "highest",
) -> Pair:  # fmt: skip
    """A function of tensors, without recording."""
    torch = torch_module()
    set_up(precision)
    ours, theirs = both(*shapes)

    def we() -> Any:
        with mt.no_grad():
            return op(*ours)

    def they() -> Any:
        with torch.no_grad():
            return their_op(*theirs)

    return we, they


def backward(op: Callable, their_op: Callable, *shapes: tuple[int, ...]) -> Pair:
    """The backward pass alone, of a function that was recorded; the first gradient."""
    torch = torch_module()
    set_up()
    ours, theirs = both(*shapes, grad=True)
    y, their_y = op(*ours), their_op(*theirs)
    up = torch.randn_like(their_y)
    mine = on_our_side(up)

    def we() -> Any:
        return mt.grad(y, ours, mine, retain_graph=True)[0]

    def they() -> Any:
        return torch.autograd.grad(their_y, theirs, up, retain_graph=True)[0]

    return we, they
