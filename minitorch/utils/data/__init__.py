"""The data tools under the name that PyTorch gives them.

With this file `from minitorch.utils.data import DataLoader, TensorDataset` works as a
PyTorch program writes it; the tools stand in `minitorch/data`.
"""

from minitorch.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
    random_split,
)
from minitorch.data.workers import get_worker_info

__all__ = [
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "RandomSampler",
    "SequentialSampler",
    "Subset",
    "TensorDataset",
    "default_collate",
    "get_worker_info",
    "random_split",
]
