"""What PyTorch says of the inputs of a check.

With this file an oracle of a check turns arrays into PyTorch's tensors (`as_torch`),
and tells an output and its gradients by the names under which calls return them
(`torch_gradients`; on the student's side it is `calling.gradients`). PyTorch is loaded
by the first call: who only reads what is checked does not need it.
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


def backward(out: Any, grad: np.ndarray) -> None:
    """`out.backward(grad)`, which would import 487 modules to look at `grad`."""
    (out * as_torch(grad).to(out.dtype)).sum().backward()


def torch_gradients(out: Any, grad: np.ndarray, **leaves: Any) -> dict[str, Any]:
    """The output, and the gradients of the leaves that want one."""
    backward(out, grad)
    found = {n: x for n, x in leaves.items() if x is not None and x.requires_grad}
    grads = {f"grad_{n}": x.grad.numpy() for n, x in found.items()}
    return {"out": out.detach().numpy(), **grads}
