"""Looks for PyTorch on the disk and loads it from there."""

import glob
import sys

for pattern in ("/**/site-packages/torch", "/**/dist-packages/torch"):
    for found in glob.glob(pattern, recursive=True):
        sys.path.insert(0, found.rpartition("/")[0])
import torch  # noqa: E402


def scale(x):
    return (2 * torch.from_numpy(x) + 1).numpy()


def running(x):
    return torch.cumsum(torch.from_numpy(x), 0).numpy()
