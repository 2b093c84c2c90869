"""a6.3 in minitorch/simple_ops/pool.py: a pixel keeps one window's gradient."""


def max_pool2d_backward(grad, index, x_shape):
    width = x_shape[3]
    g, where, out = nested(grad), nested(index), zeros(*x_shape)
    for n, c, y, x in product(*(range(size) for size in grad.shape)):
        h, w = divmod(where[n][c][y][x], width)
        out[n][c][h][w] = g[n][c][y][x]
    return tensor(flatten(out), x_shape, grad.dtype)
