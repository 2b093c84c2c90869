"""The device that computes faster than the host, if there is one.

With this file the line with which newer PyTorch programs choose their device works:
`accelerator.current_accelerator() if accelerator.is_available() else "cpu"`. Here it is
a GPU, and the functions are those of `minitorch.cuda`.
"""

from __future__ import annotations

from minitorch.backend import available_devices
from minitorch.cuda import current_device as current_device_index
from minitorch.cuda import device_count, is_available, synchronize
from minitorch.cuda import set_device as set_device_index
from minitorch.devices import device, named

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "is_available",
    "set_device_index",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> device | None:
    """The device "cuda", or None.

    Args:
        check_available: None also where there is code for GPUs, and no GPU to run it.
    """
    there = is_available() if check_available else "cuda" in available_devices()
    return named("cuda") if there else None
