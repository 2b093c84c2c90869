"""a6.1 in minitorch/simple_ops/conv.py: counts the padding once."""


def out_size(size, kernel, stride, padding, dilation):
    return (size + padding - dilation * (kernel - 1) - 1) // stride + 1
