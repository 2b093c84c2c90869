"""What a launcher asks of tensors before it gives their addresses to a kernel.

With this file one can raise a readable error for a tensor that is on another device or
of another dtype (`check_float32`), and where there is no GPU but the simulator.
"""

from __future__ import annotations

from cuda_ops.runtime import device
from cuda_ops.simulator import SIMULATED
from minitorch.dtypes import float32
from minitorch.tensor_data import TensorData


def in_simulator(name: str) -> str:
    """Why a kernel cannot run in the simulator, and what to do."""
    return (
        f"{name} is written in Mojo, and Numba's simulator runs Python; use a GPU, "
        f"without NUMBA_ENABLE_CUDASIM, or the kernel in cuda_ops"
    )


def check_float32(name: str, *operands: TensorData) -> None:
    """Raise unless all operands are float32 tensors in the memory of a GPU."""
    if SIMULATED:
        raise RuntimeError(in_simulator(name))
    for a in operands:
        if not a.device.startswith("cuda") or a.device != device.current.name:
            raise ValueError(
                f'{name}: got a tensor on "{a.device}"; expected one on the current '
                f'GPU (.to("cuda"))'
            )
        if a.dtype is not float32:
            raise TypeError(
                f"{name}: got {a.dtype.name}; Mojo's kernels for the GPU take float32 "
                f"(.to(float32)), those of cuda_ops any dtype"
            )
