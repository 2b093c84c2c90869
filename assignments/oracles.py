"""What PyTorch says of the inputs of a check.

With this file an oracle of a check turns arrays into PyTorch's tensors (`as_torch`),
and tells an output and its gradients by the names under which calls return them
(`torch_gradients`; on the student's side it is `calling.gradients`). What is written
for several devices has one oracle (`elementwise`, `product`, `folded`). PyTorch is
loaded by the first call: who only reads what is checked does not need it.
"""

from __future__ import annotations

import gc
from functools import cache
from typing import Any

import numpy as np


@cache
def load() -> Any:
    """PyTorch, computing in one thread.

    Checks have small inputs: to wake other threads, and let them wait for work, takes
    far longer than the work, and keeps a processor from who is checked. Nothing that is
    imported is garbage: to look for some would take a third of the time.
    """
    gc.disable()
    try:
        import torch
    finally:
        gc.freeze()
        gc.enable()
    torch.set_num_threads(1)
    return torch


def as_torch(array: np.ndarray | None, requires_grad: bool = False) -> Any:
    """A PyTorch tensor with the elements of an array; None for None."""
    if array is None:
        return None
    return load().from_numpy(np.array(array)).requires_grad_(requires_grad)


def elementwise(
    fn: str, a: np.ndarray, b: np.ndarray | None = None, **how: Any
) -> dict[str, Any]:
    """`map` of a, or `zip` of a and b."""
    given = (as_torch(x) for x in (a, b) if x is not None)
    return {"out": vars(load())[fn](*given).numpy()}


def product(a: np.ndarray, b: np.ndarray, **how: Any) -> dict[str, Any]:
    """a @ b"""
    return {"out": (as_torch(a) @ as_torch(b)).numpy()}


# What is folded, and what a fold starts with.
STARTS = {"add": 0.0, "mul": 1.0, "maximum": -np.inf}


def folded(
    fn: str, a: np.ndarray, dims: tuple[int, ...], start: float, **how: Any
) -> dict[str, Any]:
    """`reduce` over dims, by NumPy in float64."""
    folds = {"add": np.add, "mul": np.multiply, "maximum": np.maximum}
    wide = a.astype(np.float64)
    out = folds[fn].reduce(wide, tuple(dims), keepdims=True, initial=start)
    return {"out": np.asarray(out).astype(a.dtype)}


def backward(out: Any, grad: np.ndarray) -> None:
    """`out.backward(grad)`, which would import 487 modules to look at `grad`."""
    (out * as_torch(grad).to(out.dtype)).sum().backward()


def torch_gradients(out: Any, grad: np.ndarray, **leaves: Any) -> dict[str, Any]:
    """The output, and the gradients of the leaves that want one."""
    backward(out, grad)
    found = {n: x for n, x in leaves.items() if x is not None and x.requires_grad}
    grads = {f"grad_{n}": x.grad.numpy() for n, x in found.items()}
    return {"out": out.detach().numpy(), **grads}
