"""Questions about the GPU: `minitorch.cuda.is_available()`.

With this file a program can choose its device as PyTorch programs do.
"""

from __future__ import annotations

from minitorch.backend import available_devices, get_backend


def is_available() -> bool:
    """Whether tensors can be put on the device "cuda" here."""
    if "cuda" not in available_devices():
        return False
    try:
        get_backend("cuda")
    except RuntimeError:
        return False
    return True


def device_count() -> int:
    """How many GPUs can be used: one or none."""
    return int(is_available())
