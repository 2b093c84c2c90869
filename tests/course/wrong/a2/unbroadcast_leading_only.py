"""a2.2 in minitorch/functions/operands.py: sums only new leading dims."""


def unbroadcast(grad, shape):
    lead = len(grad.shape) - len(shape)
    if lead:
        grad = grad.sum(list(range(lead)))
    return grad if grad.shape == shape else grad.mean(0, keepdim=True).expand(shape)
