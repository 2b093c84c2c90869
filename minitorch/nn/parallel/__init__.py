"""Modules that several ranks train together.

With this package each rank computes on its own part of a batch, and all have the same
parameters (`DistributedDataParallel`); `DataParallel` is for programs of one process.
"""

from minitorch.nn.parallel.distributed import DistributedDataParallel
from minitorch.nn.parallel.one_process import DataParallel
