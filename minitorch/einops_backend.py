"""Tensors for einops: `einops.rearrange(x, "n c h w -> n (h w) c")`, where it is there.

With this file `rearrange`, `reduce`, `repeat`, `pack`, `unpack` and `einsum` of the
package einops take tensors of ours. It asks each class that is made from one of its own
whose tensors it knows; the one for PyTorch asks for nothing that is not here as well.
`import minitorch` imports this file, and goes on without it where einops is missing.
"""

from __future__ import annotations

from einops._backends import TorchBackend

import minitorch


class MinitorchBackend(TorchBackend):
    """What einops does to tensors, by the functions of this library."""

    framework_name = "minitorch"

    def __init__(self) -> None:
        self.torch = minitorch
