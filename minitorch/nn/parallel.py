"""Modules that are trained by several processes, which is not here yet.

With this file `from minitorch.nn.parallel import DistributedDataParallel` works, and a
program that wraps a model in it is told that it cannot.
"""

from __future__ import annotations

from typing import Any

from minitorch.nn.module import Module


class DistributedDataParallel(Module):
    """Raises a RuntimeError: there are no groups of processes."""

    def __init__(self, module: Module, **options: Any) -> None:
        raise RuntimeError(
            "DistributedDataParallel: training by several processes is not here yet; "
            "use the module itself, in one process"
        )
