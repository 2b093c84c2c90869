"""Functions that Mojo does not have yet, from the CPU backend.

With this file `backend.py` can take a function from `fast_ops`: both devices keep their
tensors in host memory, so the Numba kernels run on the tensors of "mojo" as they are,
and only the results are labelled anew. `minitorch doctor` lists them (`names`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from fast_ops import elementwise
from minitorch.tensor_data import TensorData
from mojo_ops.memory import relabelled


def from_cpu(fn: Callable) -> Callable:
    """The function `fn` of `fast_ops`, for tensors on this device."""

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if isinstance(result, TensorData):
            return relabelled(result)
        if isinstance(result, tuple):
            return tuple(relabelled(part) for part in result)
        return result

    run.from_cpu = True  # type: ignore[attr-defined]
    return run


map = from_cpu(elementwise.map)
zip = from_cpu(elementwise.zip)


def names(backend: Any) -> list[str]:
    """The functions of the backend that are not in Mojo."""
    public = (n for n in dir(backend) if not n.startswith("_"))
    return [n for n in public if hasattr(getattr(backend, n), "from_cpu")]
