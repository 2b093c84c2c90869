"""retain_grad() holds for the tensor as it is after a change in place."""

import torch

a = torch.tensor([1.0, 2.0], requires_grad=True)
b = a * 2
b.retain_grad()
b[None] = 3.0
b.backward(torch.arange(1.0, 3.0))
