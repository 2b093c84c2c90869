"""a8.3 in fast_ops/norm.py: mean(x^2) - mean^2, which loses all digits."""


def _layer_norm(x, weight, bias, eps, out, mean, rstd):
    D = weight.size
    for r in prange(mean.size):
        at = np.int64(r) * D
        row, made = x[at : at + D], out[at : at + D]
        middle = x.dtype.type(line_sum(row) / D)
        square = x.dtype.type(line_squares(row, x.dtype.type(0)) / D)
        scale = x.dtype.type(1.0 / math.sqrt(square - middle * middle + eps))
        mean[r] = middle
        rstd[r] = scale
        for i in range(D):
            made[i] = (row[i] - middle) * scale * weight[i] + bias[i]
