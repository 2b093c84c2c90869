"""a15.5 in minitorch/data/cleaning/classifier.py: labels are not shuffled."""

RIGHT = "tensor([labels[i] for i in some], device=device)"
WRONG = "tensor(list(labels[: len(some)]), device=device)"
