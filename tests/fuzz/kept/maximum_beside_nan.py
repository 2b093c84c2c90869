"""Where one operand is NaN, maximum and minimum pass the gradient to both."""

from math import nan

import torch

a = torch.tensor([1.0, nan, 2.0], requires_grad=True)
b = torch.tensor([nan, 1.0, 2.0], requires_grad=True)
c = torch.maximum(a, b)
d = torch.minimum(a, b)
c.backward(torch.arange(1.0, 4.0))
d.backward(torch.arange(1.0, 4.0))
