"""A view of what was changed in place since takes part in its graph."""

import torch

a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor([1.0, 2.0])
c = b[1:]
b += a
c.backward(torch.arange(1.0, 2.0))
