"""Softmax, log-softmax and cross-entropy, forward and backward: launchers.

With this file a backend of the host turns scores into probabilities along a dimension
and compares scores with target classes. The kernels see rows of n numbers: a dimension
that is not the last one is moved there first, by a copy.

    softmax(a, out, n)                      softmax_backward(grad, out, dx, n)
    log_softmax(a, out, n)                  log_softmax_backward(grad, out, dx, n)
    first_bad_target(target, C, ignore_index)       -> its number, or -1
    cross_entropy(logits, target, ignore_index, losses, logsumexp)
    cross_entropy_backward(grad, logits, target, logsumexp, ignore_index, dx)
    mean_loss(losses, target, ignore_index, mean, share)
"""

from __future__ import annotations

import math
from typing import Any

from minitorch.backend.host.memory import SERIAL_LIMIT, FlatKernel, HostMemory
from minitorch.backend.softmax import Softmax
from minitorch.tensor_data import TensorData


class HostSoftmax(HostMemory, Softmax):
    """The launchers of the kernels above."""

    _softmax: Any

    def softmax(self, a: TensorData, dim: int) -> TensorData:
        """Each row in one pass over memory."""
        return self._along(self._softmax.softmax, dim, a)

    def softmax_backward(
        self, grad: TensorData, out: TensorData, dim: int
    ) -> TensorData:
        """As `softmax`."""
        return self._along(self._softmax.softmax_backward, dim, grad, out)

    def log_softmax(self, a: TensorData, dim: int) -> TensorData:
        """As `softmax`."""
        return self._along(self._softmax.log_softmax, dim, a)

    def log_softmax_backward(
        self, grad: TensorData, out: TensorData, dim: int
    ) -> TensorData:
        """As `softmax`."""
        return self._along(self._softmax.log_softmax_backward, dim, grad, out)

    def _along(self, kernel: FlatKernel, dim: int, *operands: TensorData) -> TensorData:
        """Run the kernel on the rows of all operands along `dim`."""
        rows = [self._last(a, dim) for a in operands]
        out = self.empty(rows[0].shape, rows[0].storage.dtype)
        z = out.storage.array
        if len(z):
            width = out.shape[-1] if out.shape else 1
            kernel[len(z) >= SERIAL_LIMIT](*[a.flat() for a in rows], z, width)
        return self._back(out, dim)

    def cross_entropy(
        self, logits: TensorData, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """The targets are checked before anything is computed."""
        (rows, classes), dtype = logits.shape, logits.storage.dtype
        losses, total = self.empty((rows,), dtype), self.empty((rows,), dtype)
        wanted = self._int64s(target)
        bad = self._softmax.first_bad_target[False](wanted, classes, ignore_index)
        if bad >= 0:
            raise IndexError(
                f"cross_entropy: target[{bad}] is {wanted[bad]}, but there are "
                f"{classes} classes; targets must be from 0 to {classes - 1}, or "
                f"{ignore_index} (ignore_index)"
            )
        if rows * classes:
            self._softmax.cross_entropy[rows * classes >= SERIAL_LIMIT](
                self._flat(logits), wanted, ignore_index,
                losses.storage.array, total.storage.array,
            )  # fmt: skip
        else:
            losses.storage.array.fill(0)
            total.storage.array.fill(-math.inf)
        return losses, total

    def cross_entropy_backward(
        self,
        grad: TensorData,
        logits: TensorData,
        target: TensorData,
        logsumexp: TensorData,
        ignore_index: int,
        out: TensorData | None = None,
    ) -> TensorData:
        """One exponential for each score: the forward pass kept one number a row."""
        dx = out
        if dx is None or not dx.is_contiguous():
            dx = self.empty(logits.shape, logits.storage.dtype)
        z = dx.flat()
        if len(z):
            self._softmax.cross_entropy_backward[len(z) >= SERIAL_LIMIT](
                self._flat(grad), self._flat(logits), self._int64s(target),
                self._flat(logsumexp), ignore_index, z,
            )  # fmt: skip
        return self.into(out, dx)

    def mean_loss(
        self, losses: TensorData, target: TensorData, ignore_index: int
    ) -> tuple[TensorData, TensorData]:
        """One thread adds the N numbers up, in float64."""
        dtype = losses.storage.dtype
        mean, share = self.empty((), dtype), self.empty((), dtype)
        self._softmax.mean_loss[False](
            self._flat(losses), self._int64s(target), ignore_index,
            mean.storage.array, share.storage.array,
        )  # fmt: skip
        return mean, share
