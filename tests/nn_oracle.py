"""What tests of networks share: the same numbers and weights here and in PyTorch.

With this file a test can make a pair of inputs (`pair`), copy the weights of a PyTorch
module into one of ours (`copy_weights`), run both forward and backward, and compare all
outputs and gradients (`same`, `check_module`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import helpers
import minitorch


def ours(tensor: torch.Tensor, device: str = "cpu") -> minitorch.Tensor:
    """A leaf with the numbers of a PyTorch tensor."""
    out = minitorch.tensor(tensor.detach().numpy(), device=device)
    return out.requires_grad_(tensor.requires_grad)


def pair(
    *shape: int, seed: int = 0, device: str = "cpu", grad: bool = True, low: float = 0
) -> tuple[minitorch.Tensor, torch.Tensor]:
    """Random normal numbers twice: a tensor of ours and one of PyTorch's.

    With `low`, uniform numbers in [low, 1 - low] instead.
    """
    rng = np.random.default_rng(seed)
    array = rng.uniform(low, 1 - low, shape) if low else rng.standard_normal(shape)
    theirs = torch.tensor(array.astype(np.float32), requires_grad=grad)
    return ours(theirs, device), theirs


def numbers(
    high: int, *shape: int, seed: int = 1, device: str = "cpu"
) -> tuple[minitorch.Tensor, torch.Tensor]:
    """Random int64 numbers in [0, high), twice."""
    array = np.random.default_rng(seed).integers(0, high, shape)
    return minitorch.tensor(array, device=device), torch.tensor(array)


def state_of(module: torch.nn.Module) -> dict[str, minitorch.Tensor]:
    """The state of a PyTorch module as tensors of ours."""
    return {name: ours(value) for name, value in module.state_dict().items()}


def copy_weights(mine: minitorch.nn.Module, theirs: torch.nn.Module) -> Any:
    """Give our module the numbers of PyTorch's."""
    mine.load_state_dict(state_of(theirs))
    return mine


def same(
    mine: minitorch.Tensor, theirs: torch.Tensor, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Both have one shape, one dtype and, up to a tolerance, the same numbers."""
    assert tuple(mine.shape) == tuple(theirs.shape)
    assert mine.dtype.name == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_allclose(
        mine.detach().cpu().numpy(), theirs.detach().numpy(), rtol=rtol, atol=atol
    )


def backward(mine: minitorch.Tensor, theirs: torch.Tensor) -> None:
    """Send one random gradient back through both."""
    upper = torch.tensor(
        np.random.default_rng(7).standard_normal(tuple(theirs.shape)),
        dtype=theirs.dtype,
    )
    theirs.backward(upper)
    mine.backward(ours(upper, mine.device))


def check_module(
    mine: minitorch.nn.Module,
    theirs: torch.nn.Module,
    *shape: int,
    device: str = "cpu",
    **tolerance: float,
) -> None:
    """Outputs, gradients of input and parameters, and buffers agree."""
    copy_weights(mine, theirs).to(device)
    x, tx = pair(*shape, device=device)
    out, expected = mine(x), theirs(tx)
    same(out, expected, **tolerance)
    backward(out, expected)
    same(x.grad, tx.grad, **tolerance)
    parameters = dict(theirs.named_parameters())
    assert [name for name, _ in mine.named_parameters()] == list(parameters)
    for name, parameter in mine.named_parameters():
        same(parameter.grad, parameters[name].grad, **tolerance)
    buffers = dict(theirs.named_buffers())
    assert [name for name, _ in mine.named_buffers()] == list(buffers)
    for name, buffer in mine.named_buffers():
        same(buffer, buffers[name], **tolerance)


def agree(
    call: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    device: str = "cpu",
    layout: str = "contiguous",
    low: float = 0,
) -> None:
    """call(library, *tensors) in float64, and its gradients, are PyTorch's.

    The first operand lies in memory as `layout` says; see `pair` for `low`.
    """
    rng = np.random.default_rng(0)
    draw = (lambda s: rng.uniform(low, 1 - low, s)) if low else rng.standard_normal
    arrays = [np.asarray(draw(shape)) for shape in shapes]
    if layout == "expanded":
        arrays[0] = np.broadcast_to(arrays[0][:1], shapes[0]).copy()
    kinds = [layout] + ["contiguous"] * len(arrays)
    mine = [minitorch.Tensor(helpers.make(a, device, k)) for a, k in zip(arrays, kinds)]
    mine = [x.requires_grad_() for x in mine]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    out, expected = call(minitorch, *mine), call(torch, *theirs)
    same(out, expected, 1e-9, 1e-10)
    backward(out, expected)
    for x, y in zip(mine, theirs):
        same(x.grad, y.grad, 1e-9, 1e-10)
