"""Bring groups of numbers to mean 0 and variance 1.

With this file one can normalize the rows of a matrix (`layer_norm`) or the channels of
a batch (`batch_norm`), and carry gradients back through both. A group is a row in the
one and a channel in the other; the mathematics of a group stands here once, in
`moments` and `group_backward`.
"""

from __future__ import annotations

from itertools import product

from minitorch import operators
from minitorch.simple_ops.elementwise import zip as zip_elements
from minitorch.simple_ops.lists import nested, read, tensor
from minitorch.simple_ops.random import dropout
from minitorch.tensor_data import Shape, TensorData

Three = tuple[TensorData, TensorData, TensorData]


def layer_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> Three:
    """x [R, D], weight and bias [D] -> out [R, D], mean [R], rstd [R].

    out = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps) with the
    biased variance of each row.

    Source: Ba, Kiros and Hinton, "Layer normalization", 2016.
    """
    rows, size = x.shape
    w, b = read_or(weight, 1.0, size), read_or(bias, 0.0, size)
    out, means, rstds = [], [], []
    for row in nested(x):
        mean, variance = moments(row)
        rstd = operators.rsqrt(variance + eps)
        out += [(row[d] - mean) * rstd * w[d] + b[d] for d in range(size)]
        means.append(mean)
        rstds.append(rstd)
    return (
        tensor(out, (rows, size), x.dtype),
        tensor(means, (rows,), x.dtype),
        tensor(rstds, (rows,), x.dtype),
    )


def layer_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    rstd: TensorData,
    weight: TensorData | None,
) -> Three:
    """grad, x [R, D], mean, rstd [R], weight [D] -> dx [R, D], dweight [D], dbias [D].

    With n = (x - mean) * rstd: dweight and dbias are sums of grad * n and of grad over
    rows; dx is `group_backward` of each row of grad * weight.
    """
    rows, size = x.shape
    w = read_or(weight, 1.0, size)
    dx, dweight, dbias = [], [0.0] * size, [0.0] * size
    for g, row, mu, r in zip(nested(grad), nested(x), read(mean), read(rstd)):
        normal = [(value - mu) * r for value in row]
        dx += group_backward([g[d] * w[d] for d in range(size)], normal, r)
        for d in range(size):
            dweight[d] += g[d] * normal[d]
            dbias[d] += g[d]
    return (
        tensor(dx, (rows, size), x.dtype),
        tensor(dweight, (size,), x.dtype),
        tensor(dbias, (size,), x.dtype),
    )


def dropout_residual_layer_norm(
    x: TensorData,
    residual: TensorData,
    weight: TensorData | None,
    bias: TensorData | None,
    p: float,
    seed: int,
    offset: int,
    eps: float,
) -> Three:
    """layer_norm(dropout(x) + residual), all [R, D]: out, mean [R], rstd [R].

    The zeros are those of `dropout(x, p, seed, offset)`.
    """
    return layer_norm(_dropped_sum(x, residual, p, seed, offset), weight, bias, eps)


def dropout_residual_layer_norm_backward(
    grad: TensorData,
    x: TensorData,
    residual: TensorData,
    mean: TensorData,
    rstd: TensorData,
    weight: TensorData | None,
    p: float,
    seed: int,
    offset: int,
) -> tuple[TensorData, TensorData, TensorData, TensorData]:
    """Gradients for x [R, D], residual [R, D], weight [D] and bias [D]."""
    total = _dropped_sum(x, residual, p, seed, offset)
    inner, dw, db = layer_norm_backward(grad, total, mean, rstd, weight)
    return dropout(inner, p, seed, offset), inner, dw, db


def _dropped_sum(
    x: TensorData, residual: TensorData, p: float, seed: int, offset: int
) -> TensorData:
    return zip_elements(operators.add, dropout(x, p, seed, offset), residual)


def batch_norm(
    x: TensorData, weight: TensorData | None, bias: TensorData | None, eps: float
) -> Three:
    """x [N, C, L], weight and bias [C] -> out [N, C, L], mean [C], variance [C].

    out = (x - mean) / sqrt(variance + eps) * weight + bias, with the mean and the
    biased variance of each channel over N and L.

    Source: Ioffe and Szegedy, "Batch normalization", 2015.
    """
    channels = x.shape[1]
    w, b = read_or(weight, 1.0, channels), read_or(bias, 0.0, channels)
    values, means, variances = read(x), [], []
    for c in range(channels):
        group = channel(x.shape, c)
        mean, variance = moments([values[p] for p in group])
        rstd = operators.rsqrt(variance + eps)
        for p in group:
            values[p] = (values[p] - mean) * rstd * w[c] + b[c]
        means.append(mean)
        variances.append(variance)
    return (
        tensor(values, x.shape, x.dtype),
        tensor(means, (channels,), x.dtype),
        tensor(variances, (channels,), x.dtype),
    )


def batch_norm_backward(
    grad: TensorData,
    x: TensorData,
    mean: TensorData,
    variance: TensorData,
    weight: TensorData | None,
    eps: float,
) -> Three:
    """grad, x [N, C, L], mean, variance [C], weight [C] -> dx [N, C, L], dweight [C],
    dbias [C], in training mode, where mean and variance depend on x.

    The formulas are those of `layer_norm_backward`, with channels for rows; but weight
    and bias have one element for each group here, and one for each column there.
    """
    channels = x.shape[1]
    w, mu, var = read_or(weight, 1.0, channels), read(mean), read(variance)
    gs, xs = read(grad), read(x)
    dx, dweight, dbias = [0.0] * len(xs), [0.0] * channels, [0.0] * channels
    for c in range(channels):
        group = channel(x.shape, c)
        rstd = operators.rsqrt(var[c] + eps)
        normal = [(xs[p] - mu[c]) * rstd for p in group]
        slopes = group_backward([gs[p] * w[c] for p in group], normal, rstd)
        for i, p in enumerate(group):
            dx[p] = slopes[i]
            dweight[c] += gs[p] * normal[i]
            dbias[c] += gs[p]
    return (
        tensor(dx, x.shape, x.dtype),
        tensor(dweight, (channels,), x.dtype),
        tensor(dbias, (channels,), x.dtype),
    )


def moments(group: list[float]) -> tuple[float, float]:
    """The mean of a group and its biased variance, the mean of (x - mean)^2."""
    mean = operators.div(sum(group), len(group))
    return mean, operators.div(sum((x - mean) ** 2 for x in group), len(group))


def group_backward(grad: list[float], normal: list[float], rstd: float) -> list[float]:
    """The gradient for a group x from that for normal = (x - mean) * rstd.

    dx = rstd * (grad - mean(grad) - normal * mean(grad * normal)): what would change
    the mean or the variance of the group is taken away, as both are held fixed.
    """
    along_mean = operators.div(sum(grad), len(grad))
    along_normal = operators.div(sum(g * n for g, n in zip(grad, normal)), len(grad))
    return [rstd * (g - along_mean - n * along_normal) for g, n in zip(grad, normal)]


def channel(shape: Shape, c: int) -> list[int]:
    """Where the elements [:, c, :] of a tensor [N, C, L] stand in its flat list."""
    batch, channels, length = shape
    return [
        (n * channels + c) * length + i for n, i in product(range(batch), range(length))
    ]


def read_or(a: TensorData | None, default: float, size: int) -> list[float]:
    """The elements of `a` [size]; without `a`, `size` times the default."""
    return [default] * size if a is None else read(a)
