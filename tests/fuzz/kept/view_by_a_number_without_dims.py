"""An index tensor without dims is a number: what it selects is a view."""

import torch

a = torch.tensor([[0, 1]])
e = a[torch.tensor(0)]
e.add_(e)
