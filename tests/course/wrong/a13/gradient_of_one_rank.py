"""a13.4 in minitorch/distributed/tensor/parallel/operators.py: the gradient of x is
that of this rank's columns."""

RIGHT = "summed(grad.contiguous(), ctx.group), None"
WRONG = "grad, None"
