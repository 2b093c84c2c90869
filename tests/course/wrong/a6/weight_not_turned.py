"""a6.2 in minitorch/simple_ops/conv.py: the weight, turned around, spreads back."""


def conv2d_backward_input(grad, weight, x_shape, stride, padding, dilation, groups):
    g, w, out = nested(grad), nested(weight), zeros(*x_shape)
    for n, o, c, k, p, q, i, j, row, col in products(
        x_shape, weight.shape, stride, padding, dilation, groups
    ):
        out[n][c][row][col] += g[n][o][p][q] * w[o][k][-1 - i][-1 - j]
    return tensor(flatten(out), x_shape, grad.dtype)
