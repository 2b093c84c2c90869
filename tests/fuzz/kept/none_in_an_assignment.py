"""None in the index of an assignment makes a new dim of the value's shape."""

import torch

a = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
b = torch.tensor([2.0, 3.0], requires_grad=True)
a[:, None, 1, None] = torch.tensor([[[7.0]], [[8.0]]])
a[:, 1, None] *= 0
a[None, :, 2] = b
a.backward(torch.arange(1.0, 7.0).reshape((2, 3)))
