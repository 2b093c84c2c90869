"""a0.1 in minitorch/operators.py: takes out for x."""


def sigmoid_backward(grad, out):
    s = 1.0 / (1.0 + math.exp(-out))
    return grad * s * (1.0 - s)
