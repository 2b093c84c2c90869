"""Several dimensions as one.

With this file one can go from images to features in a `Sequential`: `Flatten()`.
"""

from __future__ import annotations

from minitorch.nn.module import Module
from minitorch.tensor import Tensor


class Flatten(Module):
    """Dims start_dim to end_dim as one: [N, C, H, W] -> [N, C * H * W]"""

    _shown = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)
