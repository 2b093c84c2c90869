"""The loader under a second name that PyTorch programs know it by.

With this file `from minitorch.utils.data.dataloader import DataLoader` works.
"""

from minitorch.data import DataLoader

__all__ = ["DataLoader"]
