"""Rounding that knows what a layer is fed: errors that cancel, instead of many.

With this file one can round a weight to few bits so that what the layer computes of its
usual inputs changes little (`round_with_feedback`); `round_to_bits` rounds each number
by itself, to compare. Both give whole numbers and scales as `quantization.quantize`
does, so `QuantizedLinear` can hold them.

A rounded column changes outputs by its error times an input. Where inputs go together,
the columns that are not rounded yet can make up for it. How much each of them changes
for the smallest error of all outputs, says the inverse of X^T X: this is Newton's step
with one coordinate fixed, of LeCun, Denker and Solla, "Optimal brain damage", 1989, and
Hassibi and Stork, "Second order derivatives for network pruning: optimal brain
surgeon", 1992.

Source: Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: accurate post-training
quantization for generative pre-trained transformers", 2023.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from minitorch.creation import from_numpy
from minitorch.dtypes import float32, float64
from minitorch.tensor import Tensor

Floats = npt.NDArray[np.float64]


def _grid(name: str, weight: Tensor, bits: int) -> tuple[Floats, Floats, int]:
    """The weight [N, K] in float64, the size of a step in each row [N], and how many
    steps there are on either side of 0."""
    if weight.dim() != 2 or not weight.numel() or not 2 <= bits <= 8:
        raise ValueError(
            f"{name}: the weight is {weight.raw.shape}, with {bits} bits; expected "
            f"(N, K), not empty, with 2 to 8"
        )
    w = weight.detach().to(float64).cpu().numpy().copy()
    if not np.isfinite(w).all():
        raise ValueError(f"{name}: the weight is not finite")
    largest = 2 ** (bits - 1) - 1
    return w, np.abs(w).max(1) / largest, largest


def nearest(w: Any, scale: Any, largest: int) -> Any:
    """Whole numbers, -largest to largest, for which scale * these are nearest to w.

    Args:
        w, scale: arrays of shapes that broadcast; where a scale is 0, w is 0, too.
    """
    # BEGIN SOLUTION a17.1
    return np.clip(np.round(w / np.where(scale > 0, scale, 1)), -largest, largest)
    # END SOLUTION a17.1


def _as_tensors(q: Any, scale: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
    kind = weight.dtype if weight.dtype in (float32, float64) else float32
    whole = from_numpy(q.astype(np.int8)).to(weight.device)
    return whole, from_numpy(scale).to(weight.device, kind)


def round_to_bits(weight: Tensor, bits: int = 4) -> tuple[Tensor, Tensor]:
    """Each number to the nearest of 2^bits - 1: float [N, K] -> int8 [N, K], scale [N]

    weight[n, k] is nearly scale[n] * q[n, k], and the largest of a row exactly.

    Errors: ValueError for a weight that is no matrix, empty or not finite, and for bits
    that are not 2 to 8.
    """
    w, scale, largest = _grid("round_to_bits", weight, bits)
    return _as_tensors(nearest(w, scale[:, None], largest), scale, weight)


def feedback_factor(x: Any, damping: float = 0.01) -> Floats:
    """U [K, K], upper triangular, with U^T U the inverse of X^T X, damped.

    Damping adds that share of the diagonal's mean to the diagonal, which makes X^T X
    invertible when there are too few inputs, or some that are always 0, and keeps
    columns from changing much for little.

    Row k of U says what column k's error does to those behind it, once columns before
    k are rounded and change no more.

    Args:
        x: [M, K], the layer's inputs.
    """
    # BEGIN SOLUTION a17.4
    h = x.T @ x
    h[np.diag_indices(len(h))] += damping * np.mean(np.diag(h))
    # cholesky gives L L^T, of the inverse.
    return np.linalg.cholesky(np.linalg.inv(h)).T
    # END SOLUTION a17.4


def round_with_feedback(
    weight: Tensor, x: Tensor, bits: int = 4, damping: float = 0.01
) -> tuple[Tensor, Tensor]:
    """Round a weight so that x @ weight^T changes little: int8 [N, K], scale [N]

    The columns are rounded from the first to the last. What a column lost, by
    the diagonal of U (`feedback_factor`) and times its row, is taken from the columns
    behind it, before these are rounded. Scales are those of `round_to_bits`: the
    weight's own, whatever the feedback makes of it.

    Args:
        weight: [N, K].
        x: [M, K], inputs that the layer has met; a few hundred are enough.
        damping: see `feedback_factor`.

    Errors: ValueError as in `round_to_bits`, and for inputs that do not fit, are all 0,
    or not finite.
    """
    w, scale, largest = _grid("round_with_feedback", weight, bits)
    inputs = x.detach().to(float64).cpu().numpy()
    fits = inputs.ndim == 2 and inputs.shape[1] == w.shape[1]
    if not fits or not np.isfinite(inputs).all() or not inputs.any() or damping <= 0:
        raise ValueError(
            f"round_with_feedback: x is {x.raw.shape}, damping {damping}; expected "
            f"(M, {w.shape[1]}) with finite numbers that are not all 0, and a damping "
            f"above 0"
        )
    # BEGIN SOLUTION a17.4
    factor, q = feedback_factor(inputs, damping), np.zeros_like(w)
    for k in range(w.shape[1]):
        q[:, k] = nearest(w[:, k], scale, largest)
        lost = (w[:, k] - scale * q[:, k]) / factor[k, k]
        w[:, k:] -= np.outer(lost, factor[k, k:])
    return _as_tensors(q, scale, weight)
    # END SOLUTION a17.4
