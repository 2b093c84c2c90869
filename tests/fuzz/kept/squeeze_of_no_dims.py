"""The dims () of squeeze are none, not all."""

import torch

a = torch.tensor([[1.0, 2.0]])
b = a.squeeze(())
