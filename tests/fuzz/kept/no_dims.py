"""The dims () are none for any, all and squeeze, and all of them for sum."""

import torch

a = torch.tensor([[True, False]])
b = a.any(dim=())
c = a.all(dim=())
d = a.squeeze(())
e = a.sum(dim=())
