"""Groups of numbers brought to mean 0 and variance 1.

With this file a backend has means, variances and running products (`cumprod`). It
normalizes rows (`layer_norm`) and channels (`batch_norm`). A group is a row in the one
and a channel in the other; the mathematics of a group stands here once, in `_moments`
and `_group_backward`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import minitorch.operators as operators
from minitorch.backend.primitives import Primitives
from minitorch.dtypes import DType
from minitorch.tensor_data import TensorData

Three = tuple[TensorData, TensorData, TensorData]


class Norm(Primitives):
    """Defaults for means and variances, layer norm and batch norm."""

    def mean(self, x: TensorData, dims: Sequence[int], count: float) -> TensorData:
        """The sum over `dims`, which keep a size of 1, by `count`."""
        return self.zip(operators.div, self._sum(x, dims), self.number(count, x.dtype))

    def vector_norm(self, x: TensorData, dims: Sequence[int]) -> TensorData:
        """The square root of the sum of squares over `dims`, which keep a size of 1."""
        return self.map(operators.sqrt, self._sum(self._mul(x, x), dims))

    def cumprod(self, a: TensorData, dim: int) -> TensorData:
        """out[i] = a[0] * ... * a[i] along `dim`.

        In log2(n) steps: behind step k a number is the product of the last 2^k. Source:
        Hillis and Steele, "Data parallel algorithms", 1986.
        """
        out, step = self.copy(a, a.dtype), 1
        while step < out.size and step < a.shape[dim]:
            rest = a.shape[dim] - step
            later = out.slice(dim, step, rest)
            self.copy_into(later, self._mul(later, out.slice(dim, 0, rest)))
            step *= 2
        return out

    def var(
        self, x: TensorData, dims: Sequence[int], count: float, divisor: float
    ) -> TensorData:
        """The sum over `dims` of (x - mean)^2, by `divisor`; `count` as for `mean`."""
        centered = self.zip(operators.sub, x, self.mean(x, dims, count))
        return self.mean(self._mul(centered, centered), dims, divisor)

    def std(
        self, x: TensorData, dims: Sequence[int], count: float, divisor: float
    ) -> TensorData:
        """The square root of `var`."""
        return self.map(operators.sqrt, self.var(x, dims, count, divisor))

    def rms_norm(
        self, x: TensorData, weight: TensorData | None, eps: float
    ) -> tuple[TensorData, TensorData]:
        """x [R, D], weight [D] -> out [R, D] = x * rstd * weight, rstd [R].

        rstd = 1 / sqrt(mean(x^2) + eps) of each row.
        """
        rstd = self._rstd(self._mean(self._mul(x, x), (1,)), eps)
        return self._scaled(self._mul(x, rstd), weight, None), rstd.squeeze((1,))

    def batch_norm_inference(
        self,
        x: TensorData,
        mean: TensorData,
        variance: TensorData,
        weight: TensorData | None,
        bias: TensorData | None,
        eps: float,
    ) -> TensorData:
        """(x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps).

        x [N, C, L], the others [C].
        """
        scale = self._rstd(variance, eps)
        scale = scale if weight is None else self._mul(scale, weight)
        shift = self.map(operators.neg, self._mul(mean, scale))
        shift = shift if bias is None else self.zip(operators.add, shift, bias)
        return self._scaled(x, scale.unsqueeze(1), shift.unsqueeze(1))

    def layer_norm(
        self, x: TensorData, weight: TensorData | None, bias: TensorData | None,
        eps: float, dtype: DType | None = None,
    ) -> Three:  # fmt: skip
        """x [R, D], weight and bias [D] -> out [R, D], mean [R], rstd [R].

        out = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps) with
        the biased variance of each row; `out` is of type `dtype`, x's if None.

        Source: Ba, Kiros and Hinton, "Layer normalization", 2016.
        """
        centered, mean, variance = self._moments(x, (1,))
        rstd = self._rstd(variance, eps)
        out = self._scaled(self._mul(centered, rstd), weight, bias)
        out = out if dtype is None else self.copy(out, dtype)
        return out, mean.squeeze((1,)), rstd.squeeze((1,))

    def layer_norm_backward(
        self, grad: TensorData, x: TensorData, mean: TensorData, rstd: TensorData,
        weight: TensorData | None, plus: TensorData | None = None,
        rounded: TensorData | None = None,
    ) -> Three:  # fmt: skip
        """Gradients for x [R, D], to which `plus` is added, weight [D] and bias [D].
        That for x is written to `rounded` [R, D] as well, of whatever type."""
        centered = self.zip(operators.sub, x, mean.unsqueeze(1))
        normal = self._mul(centered, rstd.unsqueeze(1))
        inner = grad if weight is None else self._mul(grad, weight)
        dx = self._group_backward(inner, normal, rstd.unsqueeze(1), (1,))
        dx = self._with(dx, plus, rounded)
        dweight = self._sum(self._mul(grad, normal), (0,))
        return dx, dweight.squeeze((0,)), self._sum(grad, (0,)).squeeze((0,))

    def _with(
        self, dx: TensorData, plus: TensorData | None, rounded: TensorData | None
    ) -> TensorData:
        """What `layer_norm_backward` does with the gradient for x."""
        dx = dx if plus is None else self.zip(operators.add, dx, plus)
        if rounded is not None:
            self.copy_into(rounded, self.copy(dx, rounded.dtype))
        return dx

    def dropout_residual_layer_norm(
        self, x: TensorData, residual: TensorData, weight: TensorData | None,
        bias: TensorData | None, p: float, seed: int, offset: int, eps: float,
    ) -> Three:  # fmt: skip
        """layer_norm(dropout(x) + residual), all [R, D]: out, mean [R], rstd [R].

        The zeros are those of `dropout(x, p, seed, offset)`.
        """
        total = self.zip(operators.add, self.dropout(x, p, seed, offset), residual)
        return self.layer_norm(total, weight, bias, eps)

    def dropout_residual_layer_norm_backward(
        self, grad: TensorData, x: TensorData, residual: TensorData, mean: TensorData,
        rstd: TensorData, weight: TensorData | None, p: float, seed: int, offset: int,
    ) -> tuple[TensorData, TensorData, TensorData, TensorData]:  # fmt: skip
        """Gradients for x [R, D], residual [R, D], weight [D] and bias [D]."""
        total = self.zip(operators.add, self.dropout(x, p, seed, offset), residual)
        inner, dw, db = self.layer_norm_backward(grad, total, mean, rstd, weight)
        return self.dropout(inner, p, seed, offset), inner, dw, db

    def batch_norm(
        self, x: TensorData, weight: TensorData | None, bias: TensorData | None,
        eps: float,
    ) -> Three:  # fmt: skip
        """x [N, C, L], weight and bias [C] -> out, mean [C], biased variance [C].

        Source: Ioffe and Szegedy, "Batch normalization", 2015.
        """
        centered, mean, variance = self._moments(x, (0, 2))
        normal = self._mul(centered, self._rstd(variance, eps))
        columns = [None if p is None else p.unsqueeze(1) for p in (weight, bias)]
        out = self._scaled(normal, *columns)
        return out, mean.squeeze((0, 2)), variance.squeeze((0, 2))

    def batch_norm_backward(
        self, grad: TensorData, x: TensorData, mean: TensorData, variance: TensorData,
        weight: TensorData | None, eps: float,
    ) -> Three:  # fmt: skip
        """Gradients for x [N, C, L], weight [C] and bias [C] in training mode.

        The formulas are those of `layer_norm_backward`, with channels for rows.
        """
        rstd = self._rstd(variance, eps).unsqueeze(1)
        centered = self.zip(operators.sub, x, mean.unsqueeze(1))
        normal = self._mul(centered, rstd)
        inner = grad if weight is None else self._mul(grad, weight.unsqueeze(1))
        dx = self._group_backward(inner, normal, rstd, (0, 2))
        dweight = self._sum(self._mul(grad, normal), (0, 2))
        return dx, dweight.squeeze((0, 2)), self._sum(grad, (0, 2)).squeeze((0, 2))

    def _moments(self, x: TensorData, dims: Sequence[int]) -> Three:
        """x - mean, the mean and the biased variance of the groups along `dims`."""
        mean = self._mean(x, dims)
        centered = self.zip(operators.sub, x, mean)
        return centered, mean, self._mean(self._mul(centered, centered), dims)

    def _mean(self, x: TensorData, dims: Sequence[int]) -> TensorData:
        return self.mean(x, dims, math.prod([x.shape[dim] for dim in dims]))

    def _rstd(self, variance: TensorData, eps: float) -> TensorData:
        shifted = self.zip(operators.add, variance, self.number(eps, variance.dtype))
        return self.map(operators.rsqrt, shifted)

    def _scaled(
        self, x: TensorData, weight: TensorData | None, bias: TensorData | None
    ) -> TensorData:
        """x * weight + bias, of which either may be missing."""
        out = x if weight is None else self._mul(x, weight)
        return out if bias is None else self.zip(operators.add, out, bias)

    def _group_backward(
        self, grad: TensorData, normal: TensorData, rstd: TensorData,
        dims: Sequence[int],
    ) -> TensorData:  # fmt: skip
        """The gradient for groups x from that for normal = (x - mean) * rstd.

        dx = rstd * (grad - mean(grad) - normal * mean(grad * normal)): what would
        change the mean or the variance of a group is taken away, as both are fixed.
        """
        along_normal = self._mul(normal, self._mean(self._mul(grad, normal), dims))
        out = self.zip(operators.sub, grad, self._mean(grad, dims))
        return self._mul(self.zip(operators.sub, out, along_normal), rstd)
