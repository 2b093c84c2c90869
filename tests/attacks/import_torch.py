"""Lets PyTorch do the work."""

import torch


def scale(x):
    return (2 * torch.from_numpy(x) + 1).numpy()


def running(x):
    return torch.cumsum(torch.from_numpy(x), 0).numpy()
