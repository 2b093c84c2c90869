"""What only some devices have: memory that others can read, and copies on their own.

With this file code above the backends need not ask which device it is on: a backend in
the memory of the processor inherits these answers, and one with memory of its own
brings better ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import minitorch.backend.dlpack as dlpack
from minitorch.backend.primitives import Primitives
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.backend.base import Backend


class Sharing(Primitives):
    """Defaults for a device whose memory is the processor's."""

    host_memory = True  # whether to_numpy and from_numpy share a tensor's memory

    def current_index(self) -> int | None:
        """The number of the device that work goes to; None: there is only one."""
        return None

    def at(self, index: int, functions: Backend) -> Backend:
        """`functions`, which are this backend's, on the device of this number.

        Raises:
            ValueError: there is no such device.
        """
        if index != 0:
            raise ValueError(
                f"device: there is one device of this kind, and the index is {index}; "
                f"leave the index out, or say 0"
            )
        return functions

    def from_peer(self, a: TensorData) -> TensorData | None:
        """A copy of a tensor of another device of this kind; None if it is of none."""
        return None

    def synchronize(self) -> None:
        """Wait until all work that was started is done."""

    def from_numpy_async(self, array: np.ndarray) -> TensorData:
        """As from_numpy; where the array is pinned, nobody waits for the copy."""
        return self.from_numpy(array)

    def to_numpy_async(self, a: TensorData) -> np.ndarray:
        """As to_numpy, into pinned memory; nobody waits for the copy."""
        return self.to_numpy(a)

    def is_pinned(self, a: TensorData) -> bool:
        """Whether this device reads a's memory, which is the processor's, by itself."""
        return False

    def pin_memory(self, array: np.ndarray) -> np.ndarray:
        """A copy in memory that this device reads by itself."""
        raise RuntimeError("pin_memory: only the device 'cuda' has pinned memory")

    def to_dlpack(self, a: TensorData, **options: Any) -> Any:
        """A DLPack capsule of a's memory."""
        return dlpack.capsule_of(self.to_numpy(a), **options)

    def dlpack_device(self, a: TensorData) -> tuple[int, int]:
        """DLPack's type and number of the device that holds a's memory."""
        return 1, 0  # the CPU

    def from_dlpack(self, source: Any) -> TensorData:
        """A tensor on the memory of an object with a `__dlpack__`."""
        return self.from_numpy(dlpack.array_of(source))

    def from_cuda_array(self, source: Any) -> TensorData:
        """A tensor on the memory of an object with a `__cuda_array_interface__`."""
        raise TypeError("only the device 'cuda' takes memory of a GPU")

    def cuda_array_interface(self, a: TensorData) -> dict[str, Any]:
        """Where a's memory on the GPU is."""
        raise AttributeError(
            f"the tensor is on {a.device!r}; only tensors on 'cuda' have a "
            f"__cuda_array_interface__"
        )
