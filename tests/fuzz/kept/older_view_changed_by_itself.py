"""A change in place of a view is recorded where its base has a gradient by now."""

import torch

a = torch.tensor([1.0, 2.0], requires_grad=True)
b = torch.tensor([0.0, 0.0])
c = b.view(2)
d = b[:1]
b += a
c *= 3.0
d += c[1]
b.backward(torch.arange(1.0, 3.0))
