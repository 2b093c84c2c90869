"""The contract between operations and devices.

With this file one can read which families make a `Backend`, the class of which every
device has one object.
"""

from __future__ import annotations

from minitorch.backend.fusion import Fusion
from minitorch.backend.linear import Linear
from minitorch.backend.norm import Norm
from minitorch.backend.optim import Optim
from minitorch.backend.paged import Paged
from minitorch.backend.sharing import Sharing
from minitorch.backend.sparse import Sparse


class Backend(Linear, Paged, Norm, Sparse, Optim, Fusion, Sharing):
    """All functions of a device: the primitives it brings, and what is made of them.

    A device overrides a default where a kernel of its own pays.
    """
