"""PyTorch's error for a difference with a bool."""

import torch

a = torch.tensor([True, False])
a -= a
