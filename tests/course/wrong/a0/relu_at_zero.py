"""a0.1 in minitorch/operators.py: the gradient at 0 is 1."""


def relu_backward(grad, x):
    return 0.0 if x < 0 else grad
