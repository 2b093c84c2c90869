"""a6.3 in minitorch/simple_ops/pool.py: of equal maxima the last one wins."""


def max_pool2d(x, kernel, stride, padding, dilation):
    batch, channels, height, width = x.shape
    rows = windows(height, kernel[0], stride[0], padding[0], dilation[0])
    cols = windows(width, kernel[1], stride[1], padding[1], dilation[1])
    image, maxima, positions = nested(x), [], []
    for n, c, ys, xs in product(range(batch), range(channels), rows, cols):
        best, where = -operators.inf, 0
        for h, w in product(ys, xs):
            if image[n][c][h][w] >= best:
                best, where = image[n][c][h][w], h * width + w
        maxima.append(best)
        positions.append(where)
    shape = (batch, channels, len(rows), len(cols))
    return tensor(maxima, shape, x.dtype), tensor(positions, shape, int64)
