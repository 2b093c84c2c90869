"""PyTorch 2.13 fails within itself at the gradient of True ** x; here it is there."""

import torch

b = torch.tensor([0.0]).requires_grad_()
h = True**b
h.backward(torch.ones(1))
