"""log(0), that is -inf, where there is nothing to add up."""

import torch

a = torch.zeros((2, 0, 3), requires_grad=True)
b = a.logsumexp(dim=1)
c = a.logsumexp(dim=2, keepdim=True)
b.backward(torch.arange(1.0, 7.0).reshape((2, 3)))
