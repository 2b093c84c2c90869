"""Programs that wrap their model for all GPUs of one process, on one device.

With this file `nn.DataParallel(model)` is the model, with the names of its parameters
that such programs save and load ("module.weight").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitorch.nn.module import Module
from minitorch.warn import warn

INSTEAD = (
    "a process computes on one device here: for several GPUs start one process each "
    "with torchrun, and use nn.parallel.DistributedDataParallel"
)


class DataParallel(Module):
    """`module`, called as it is: PyTorch's deals out batches to GPUs, this one to none.

    Args:
        device_ids: the one device to use, or None.
        output_device: where results are wanted: there, or None.
        dim: of the batch; one device takes it whole.

    Attributes:
        module: the module that was given.

    Raises:
        ValueError: several devices are named.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        given = [] if device_ids is None else list(device_ids)
        if len(given) > 1 or output_device not in (None, *given):
            raise ValueError(
                f"DataParallel: device_ids is {device_ids} and output_device "
                f"{output_device}; {INSTEAD}"
            )
        if device_ids is None:  # all GPUs, in PyTorch
            warn(f"DataParallel: {INSTEAD}")
        self.module, self.dim = module, dim

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.module(*args, **kwargs)
