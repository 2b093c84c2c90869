"""t() is a view of vectors and numbers, too, and flatten of one dim is no view."""

import torch

a = torch.tensor([1.0, 2.0], requires_grad=True)
b = a.t()
c = a.flatten(0, 0)
b.backward(torch.arange(1.0, 3.0))
