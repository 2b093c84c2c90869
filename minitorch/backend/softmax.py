"""Scores into probabilities, and how wrong they are.

With this file a backend has softmax, log-softmax and cross-entropy, and their
gradients, by reductions and elementwise operations. All rest on log(sum(exp(scores))),
whose largest score is taken out of the sum first, so that `exp` cannot overflow.
"""

from __future__ import annotations

from collections.abc import Sequence

import minitorch.dtypes as dtypes
import minitorch.operators as operators
from minitorch.backend.primitives import Primitives
from minitorch.tensor_data import TensorData


class Softmax(Primitives):
    """Defaults for the softmax family."""

    def softmax(self, a: TensorData, dim: int) -> TensorData:
        """exp(a - max) / sum(exp(a - max)) along `dim`."""
        powers = self.map(operators.exp, self._below_max(a, dim)[0])
        return self.zip(operators.div, powers, self._sum(powers, (dim,)))

    def softmax_backward(
        self, grad: TensorData, out: TensorData, dim: int
    ) -> TensorData:
        """out * (grad - sum(grad * out)) along `dim`."""
        dot = self._sum(self._mul(grad, out), (dim,))
        return self._mul(out, self.zip(operators.sub, grad, dot))

    def log_softmax(self, a: TensorData, dim: int) -> TensorData:
        """a - max - log(sum(exp(a - max))) along `dim`.

        In this order: the logarithm would be lost beside a large maximum.
        """
        below = self._below_max(a, dim)[0]
        return self.zip(operators.sub, below, self._log_sum_exp(below, dim))

    def log_softmax_backward(
        self, grad: TensorData, out: TensorData, dim: int
    ) -> TensorData:
        """grad - exp(out) * sum(grad) along `dim`."""
        share = self._mul(self.map(operators.exp, out), self._sum(grad, (dim,)))
        return self.zip(operators.sub, grad, share)

    def logsumexp(self, a: TensorData, dims: Sequence[int]) -> TensorData:
        """log(sum(exp(a))) over `dims`, which keep a size of 1."""
        top = self.reduce(operators.maximum, a, dims, -operators.inf)
        # An infinite one is not taken out: infinity less itself is no number.
        finite = self.map(operators.isfinite, top, dtypes.bool_)
        top = self.where(finite, top, self._zero(a))
        powers = self.map(operators.exp, self.zip(operators.sub, a, top))
        logs = self.map(operators.log, self._sum(powers, dims))
        return self.zip(operators.add, logs, top)

    def _below_max(self, a: TensorData, dim: int) -> tuple[TensorData, TensorData]:
        """a - max along `dim`, and max."""
        top = self.reduce(operators.maximum, a, (dim,), -operators.inf)
        return self.zip(operators.sub, a, top), top

    def _log_sum_exp(self, a: TensorData, dim: int) -> TensorData:
        """log(sum(exp(a))) along `dim`, as it stands."""
        powers = self._sum(self.map(operators.exp, a), (dim,))
        return self.map(operators.log, powers)

    # -------------------------------------------------------------- cross-entropy

    def cross_entropy(
        self, logits: TensorData, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

        losses[n] = logsumexp(logits[n]) - logits[n, target[n]], or 0 where target[n]
        is `ignore_index`. Raises IndexError for another target outside [0, C).
        """
        ignored, label = self._labels(target, ignore_index)
        below, top = self._below_max(logits, 1)
        rest = self._log_sum_exp(below, 1)
        losses = self.zip(operators.sub, rest, self._picked(below, label))
        rows = (logits.shape[0],)
        total = self.zip(operators.add, top, rest)
        return (
            TensorData(self.where(ignored, self._zero(logits), losses).storage, rows),
            TensorData(total.storage, rows),
        )

    def nll(
        self, scores: TensorData, target: TensorData, ignore_index: int
    ) -> TensorData:
        """scores [N, C], target int64 [N] -> -scores[n, target[n]] [N], or 0 where
        target[n] is `ignore_index`. Raises IndexError as `cross_entropy`."""
        ignored, label = self._labels(target, ignore_index)
        losses = self.map(operators.neg, self.gather(scores, 1, label))
        chosen = self.where(ignored, self._zero(scores), losses)
        return TensorData(chosen.storage, target.shape)

    def nll_backward(
        self, grad: TensorData, target: TensorData, classes: int, ignore_index: int
    ) -> TensorData:
        """The gradient for scores [N, classes]: -grad[n] at target[n], and 0 elsewhere
        and in rows that are ignored."""
        ignored, label = self._labels(target, ignore_index)
        minus = self.map(operators.neg, grad.unsqueeze(1))
        given = self.where(ignored, self._zero(grad), minus)
        nothing = self.full((target.shape[0], classes), 0, grad.dtype)
        return self.scatter_add(nothing, 1, label, given)

    def mean_nll(
        self, scores: TensorData, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """`mean_loss` of what `nll` gives."""
        losses = self.nll(scores, target, ignore_index)
        return self.mean_loss(losses, target, ignore_index)

    def check_probabilities(self, a: TensorData) -> TensorData | None:
        """Whether all numbers are in [0, 1], as a bool []. None from a device that
        raises `not_probabilities` by itself, when it is next waited for."""
        high = self.zip(operators.le, a, self.number(1, a.dtype), dtypes.bool_)
        low = self.zip(operators.ge, a, self._zero(a), dtypes.bool_)
        inside = self.zip(operators.logical_and, low, high)
        all_ = self.reduce(operators.logical_and, inside, tuple(range(a.dims)), True)
        return TensorData(all_.storage, ())

    def cross_entropy_backward(
        self,
        grad: TensorData,
        logits: TensorData,
        target: TensorData,
        logsumexp: TensorData,
        ignore_index: int,
        out: TensorData | None = None,
    ) -> TensorData:
        """grad[n] * (softmax(logits[n]) - onehot(target[n])), rows ignored are 0.

        Into `out` [N, C] if given, of any strides, which may be the logits.
        """
        ignored, label = self._labels(target, ignore_index)
        logs = self.zip(operators.sub, logits, logsumexp.unsqueeze(1))
        minus_one = self.full(label.shape, -1, logits.dtype)
        slope = self.scatter_add(self.map(operators.exp, logs), 1, label, minus_one)
        slope = self._mul(grad.unsqueeze(1), slope)
        return self.into(out, self.where(ignored, self._zero(logits), slope))

    def cross_entropy_slopes(
        self, logits: TensorData, target: TensorData, ignore_index: int
    ) -> TensorData:
        """The losses [N] of `cross_entropy`; in the place of the logits [N, C] are then
        the gradients of their sum."""
        losses, lse = self.cross_entropy(logits, target, ignore_index)
        ones = self.full(target.shape, 1.0, losses.dtype)
        self.cross_entropy_backward(ones, logits, target, lse, ignore_index, logits)
        return losses

    def mean_loss(
        self, losses: TensorData, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """The mean [] of losses [N] with another target than `ignore_index`, and the
        share 1 / count [] that each of them has in it. NaN and infinity for none."""
        ignore, zero = self.number(ignore_index, target.dtype), self._zero(losses)
        ignored = self.zip(operators.eq, target, ignore, dtypes.bool_)
        total = self._sum(self.where(ignored, zero, losses), (0,))
        count = self._sum(self.zip(operators.ne, target, ignore, losses.dtype), (0,))
        mean = self.zip(operators.div, total, count)
        share = self.map(operators.reciprocal, count)
        return TensorData(mean.storage, ()), TensorData(share.storage, ())

    def _zero(self, like: TensorData) -> TensorData:
        return self.number(0, like.dtype)

    def _labels(
        self, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """target [N] -> which are ignored, and labels with 0 for those, both [N, 1]."""
        column = target.unsqueeze(1)
        ignore = self.number(ignore_index, target.dtype)
        ignored = self.zip(operators.eq, column, ignore, dtypes.bool_)
        return ignored, self.where(ignored, self._zero(target), column)

    def _picked(self, logits: TensorData, label: TensorData) -> TensorData:
        """logits[n, label[n]] as [N, 1]; the error names what the caller gave."""
        try:
            return self.gather(logits, 1, label)
        except IndexError as error:
            classes = logits.shape[1]
            raise IndexError(
                f"cross_entropy: a target is no class ({error}); with {classes} "
                f"classes it must be from 0 to {classes - 1}, or ignore_index"
            ) from None


def not_probabilities() -> ValueError:
    """The error of `binary_cross_entropy` for numbers outside [0, 1]."""
    return ValueError(
        "binary_cross_entropy: the input has numbers outside [0, 1]; for logits use "
        "binary_cross_entropy_with_logits"
    )
