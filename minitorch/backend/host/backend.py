"""All launchers of a backend of the host.

With this file a backend says which flat kernels it has, and is complete with `map`,
`zip`, `reduce`, `sort` and `matmul`:

    class CPUBackend(CPUMemory, HostBackend):
        _norm = norm.KERNELS
        ...
"""

from __future__ import annotations

from minitorch.backend.base import Backend
from minitorch.backend.host.attention import HostAttention
from minitorch.backend.host.conv import HostConv
from minitorch.backend.host.elementwise import HostElementwise
from minitorch.backend.host.indexing import HostIndexing
from minitorch.backend.host.linear import HostLinear
from minitorch.backend.host.norm import HostNorm
from minitorch.backend.host.optim import HostOptim
from minitorch.backend.host.pool import HostPool
from minitorch.backend.host.random import HostRandom
from minitorch.backend.host.reduce import HostReduce
from minitorch.backend.host.softmax import HostSoftmax


class HostBackend(
    HostElementwise,
    HostReduce,
    HostIndexing,
    HostLinear,
    HostAttention,
    HostSoftmax,
    HostNorm,
    HostOptim,
    HostConv,
    HostPool,
    HostRandom,
    Backend,
):
    """Launchers of all families; a backend overrides one where it knows better."""
