"""PyTorch's error for a difference with a bool."""

import torch

a = torch.tensor([True, False])
b = torch.tensor([1.0, 2.0])
c = b - a
