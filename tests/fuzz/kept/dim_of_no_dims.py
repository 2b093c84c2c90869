"""A tensor without dims has the dims 0 and -1, and no other."""

import torch

a = torch.tensor(2.0)
b = a.argmax(dim=-1)
c = a.argmax(dim=1)
