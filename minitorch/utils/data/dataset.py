"""Data sets under the name of PyTorch's module.

With this file `from minitorch.utils.data.dataset import Dataset` works.
"""

from minitorch.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

__all__ = [
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]
