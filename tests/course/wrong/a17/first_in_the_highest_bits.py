"""a17.3 in minitorch/nn/sparse.py: the first place is in the highest bits."""

RIGHT = "units = tensor([1, 4, 16, 64], device=weight.device)"
WRONG = "units = tensor([64, 16, 4, 1], device=weight.device)"
