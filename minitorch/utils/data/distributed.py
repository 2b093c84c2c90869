"""With this file PyTorch programs find their sampler for several ranks.

`from minitorch.utils.data.distributed import DistributedSampler` works.
"""

from minitorch.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
