"""Convolution product by product, for numbers that are not finite.

With this file `conv.py` puts inf and NaN where `minitorch/simple_ops/conv.py` and
PyTorch put them (`exact_output`, `exact_backward_input`, `exact_backward_weight`).

A window that reaches over the edge has no product there. The kernels have one, with a
zero of the padding; that changes no finite sum, but 0 * inf is NaN. They see it, for
what it costs to look at the weight or at its gradient, and the sums are made once more
here, slowly, in float64: for each tap, of the outputs whose tap is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minitorch.backend.primitives import Pair

Place = tuple[Any, ...]  # of a tap, or of the outputs or sources in a plane


def along(
    size: int, outputs: int, taps: int, stride: int, padding: int, dilation: int
) -> Iterator[tuple[int, slice, slice]]:
    """Along one axis, for each tap: the outputs whose tap is inside, and the source."""
    for tap in range(taps):
        reach = tap * dilation - padding
        first = max(0, -(reach // stride))
        last = min(outputs, (size - 1 - reach) // stride + 1)
        if first < last:
            start, stop = first * stride + reach, (last - 1) * stride + reach + 1
            yield tap, slice(first, last), slice(start, stop, stride)


def _each_tap(
    source: np.ndarray, output: np.ndarray, weight: np.ndarray, stride: Pair,
    padding: Pair, dilation: Pair, step: Callable[[Place, Place, Place], None],
) -> None:  # fmt: skip
    """step(tap, outputs, sources) for all taps [KH, KW] that see any of the source."""
    sizes = zip(source.shape[-2:], output.shape[-2:], weight.shape[-2:])
    options = zip(stride, padding, dilation)
    rows, columns = (list(along(*s, *o)) for s, o in zip(sizes, options))
    with np.errstate(invalid="ignore", over="ignore"):
        for i, out_h, source_h in rows:
            for j, out_w, source_w in columns:
                step((..., i, j), (..., out_h, out_w), (..., source_h, source_w))


def _by_group(image: np.ndarray, groups: int) -> np.ndarray:
    """[N, G * C, H, W] in float64, where products of float32 are exact, by groups."""
    n, channels, *plane = image.shape
    return image.astype(np.float64).reshape(n, groups, channels // groups, *plane)


def _grouped(weight: np.ndarray, groups: int) -> np.ndarray:
    """[G * M, C, KH, KW] in float64 as [G, M, C, KH, KW]."""
    return weight.astype(np.float64).reshape(groups, -1, *weight.shape[1:])


def _store(total: np.ndarray, out: np.ndarray) -> None:
    with np.errstate(over="ignore"):  # beyond the largest float32 is inf
        out[...] = total.reshape(out.shape)


def exact_output(
    x: np.ndarray, weight: np.ndarray, out: np.ndarray, bias: np.ndarray,
    stride: Pair, padding: Pair, dilation: Pair,
) -> None:  # fmt: skip
    """x [N, C, H, W], weight [O, C/groups, KH, KW], bias [O] -> out [N, O, OH, OW]."""
    groups = x.shape[1] // weight.shape[1]
    source, taps = _by_group(x, groups), _grouped(weight, groups)
    total = np.zeros((len(x), *taps.shape[:2], *out.shape[2:]))
    total += bias.reshape(*taps.shape[:2], 1, 1)

    def add(tap: Place, here: Place, there: Place) -> None:
        total[here] += np.einsum("ngchw,gmc->ngmhw", source[there], taps[tap])

    _each_tap(x, out, weight, stride, padding, dilation, add)
    _store(total, out)


def exact_backward_input(
    grad: np.ndarray, weight: np.ndarray, out: np.ndarray,
    stride: Pair, padding: Pair, dilation: Pair,
) -> None:  # fmt: skip
    """grad [N, O, OH, OW], weight [O, C/groups, KH, KW] -> out [N, C, H, W]."""
    groups = out.shape[1] // weight.shape[1]
    wide, taps = _by_group(grad, groups), _grouped(weight, groups)
    total = _by_group(np.zeros_like(out), groups)

    def add(tap: Place, here: Place, there: Place) -> None:
        total[there] += np.einsum("ngmhw,gmc->ngchw", wide[here], taps[tap])

    _each_tap(out, grad, weight, stride, padding, dilation, add)
    _store(total, out)


def exact_backward_weight(
    grad: np.ndarray, x: np.ndarray, out: np.ndarray,
    stride: Pair, padding: Pair, dilation: Pair,
) -> None:  # fmt: skip
    """grad [N, O, OH, OW], x [N, C, H, W] -> out [O, C/groups, KH, KW]."""
    groups = x.shape[1] // out.shape[1]
    wide, source = _by_group(grad, groups), _by_group(x, groups)
    total = _grouped(np.zeros_like(out), groups)

    def add(tap: Place, here: Place, there: Place) -> None:
        total[tap] = np.einsum("ngmhw,ngchw->gmc", wide[here], source[there])

    _each_tap(x, grad, out, stride, padding, dilation, add)
    _store(total, out)
