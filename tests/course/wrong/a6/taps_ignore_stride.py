"""a6.1 in minitorch/simple_ops/conv.py: windows begin side by side."""


def taps(size, kernel, stride, padding, dilation):
    found = []
    for out in range(out_size(size, kernel, stride, padding, dilation)):
        for i in range(kernel):
            position = out + i * dilation - padding
            if 0 <= position < size:
                found.append((out, i, position))
    return found
