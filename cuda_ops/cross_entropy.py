"""Cross-entropy on the GPU, forward and backward, without writing a softmax.

With this file one can compare scores with target classes (`cross_entropy`, `nll`),
average them (`mean_loss`, `mean_nll`), and take the gradients for the scores, those of
a sum of losses in their place (`cross_entropy_slopes`). The kernels of cross-entropy
read rows as those of `softmax.py` do.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from numba import cuda

from cuda_ops.block.intrinsics import WARP, device, load, store
from cuda_ops.block.rows import (
    BLOCK,
    LARGE,
    RAGGED,
    Fit,
    KernelFamily,
    merged,
    ragged_width,
    row_mapper,
    row_owner,
    summed,
)
from cuda_ops.index_errors import after_launch, bad_index, notes, number
from cuda_ops.memory import contiguous, copy, copy_into, empty, split
from cuda_ops.runtime.launch import ceil_div, kernel
from cuda_ops.softmax import ITEMS, exp, log, partial_finder
from minitorch.dtypes import DType, computed, float32, float64
from minitorch.tensor_data import TensorData

OPERATION, NLL = number("cross_entropy"), number("nll_loss")
PROBABILITIES = number("binary_cross_entropy")
TYPES = ("float32", "float64")


def cross_entropy_rows(fit: Fit) -> Callable:
    """The loss of each row, without writing a softmax.

    # logits [N, C], target [N] -> losses [N], logsumexp [N]; rows `pitch` apart

        for n:  logsumexp[n] = log(sum over c of exp(logits[n, c]))
                losses[n] = logsumexp[n] - logits[n, target[n]]

    A warp or a block reads a row once, with a running maximum and sum; nothing of
    [N, C] is written. Softmax, logarithm and choice would move five times the bytes.

    A row whose target is neither a class nor `ignore_index` leaves a note for the host
    (`index_errors.py`), and has the loss 0.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    partial_of, merge = partial_finder(fit), merged(group, exp, kind)
    zero = kind(0)

    def kernel(logits, pitch, target, ignore_index, classes, losses, logsumexp, notes):
        x = cuda.local.array(items, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        at = min(r, target.size - 1) * pitch
        top, total = partial_of(logits, at, classes, t, x)
        top, total = merge(top, total, t, tops, totals)
        rest = log(total)
        if t == 0 and r < target.size:
            logsumexp[r] = top + rest
            label = target[r]
            if label == ignore_index:
                losses[r] = zero
            elif label >= 0 and label < classes:
                losses[r] = rest - (load(logits, at + label) - top)
            else:
                losses[r] = zero
                bad_index(notes, OPERATION, label, classes, 1)

    return kernel


def cross_entropy_backward_rows(fit: Fit) -> Callable:
    """The gradient for the logits, with one exponential for each.

    # grad [N], logits [N, C], target [N], logsumexp [N] -> dx [N, C]

        for n, c:  dx[n, c] = grad[n] * (exp(logits[n, c] - logsumexp[n])
                                         - (1 if c == target[n] else 0))

    Threads as in `cross_entropy_rows`. The forward pass kept one number a row, not a
    softmax: 8 bytes for each number. `step` is 0 where all rows have one gradient, as
    those of a mean have. Where a row is ignored, all is 0. The thread whose
    number has the row's target, which it reads first, writes it a second time: `dx` may
    be `logits`.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    owner_of, zero, one = row_owner(fit), kind(0), kind(1)

    def slope(x, about):
        rest, factor, wanted = about
        return factor * exp(x - rest) if wanted else zero

    each = row_mapper(fit, slope)

    def kernel(
        grad, step, logits, pitch, target, logsumexp, ignore_index, classes, dx,
        dx_pitch,
    ):  # fmt: skip
        x = cuda.local.array(items, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        if r < target.size:
            label = target[r]
            wanted = label != ignore_index
            factor, rest = load(grad, r * step), logsumexp[r]
            at, to = r * pitch, r * dx_pitch
            inside = wanted and label >= 0 and label < classes
            mine = inside and t == owner_of(at, classes, label)
            hit = exp(load(logits, at + label) - rest) - one if mine else zero
            each(logits, at, dx, to, classes, t, x, (rest, factor, wanted))
            if mine:
                store(dx, to + label, factor * hit)

    return kernel


def cross_entropy_slopes_rows(fit: Fit) -> Callable:
    """The loss of each row, and the gradient of their sum in the row's place.

    # logits [N, C], target [N] -> losses [N], and slopes [N, C] where the logits were

        for n:  losses[n] = logsumexp(logits[n]) - logits[n, target[n]]
                logits[n] = softmax(logits[n]) - onehot(target[n])

    0 where a row is ignored. Threads as in `cross_entropy_rows`, but large blocks: the
    second time rows are read from the second-level cache, which has room for those of
    all blocks that run together. The thread with the target's number writes the loss.
    """
    kind, group, items, rows = fit.kind, fit.group, fit.items, fit.rows
    partial_of, merge = partial_finder(fit), merged(group, exp, kind)
    owner_of, zero, one = row_owner(fit), kind(0), kind(1)

    def slope(x, about):
        rest, wanted = about
        return exp(x - rest) if wanted else zero

    each = row_mapper(fit, slope)

    def kernel(logits, pitch, target, ignore_index, classes, losses, notes):
        x = cuda.local.array(items, kind)
        tops = cuda.shared.array(WARP, kind)
        totals = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x % group
        r = cuda.blockIdx.x * rows + cuda.threadIdx.x // group
        known = r < target.size
        at = (r if known else 0) * pitch
        top, total = partial_of(logits, at, classes, t, x)
        top, total = merge(top, total, t, tops, totals)
        if known:
            label = target[r]
            wanted = label != ignore_index
            inside = wanted and label >= 0 and label < classes
            owner = owner_of(at, classes, label) if inside else 0
            rest, hit = log(total), zero
            if t == owner:
                loss = zero
                if inside:
                    hit = load(logits, at + label) - top
                    loss, hit = rest - hit, exp(hit - rest) - one
                elif wanted:
                    bad_index(notes, OPERATION, label, classes, 1)
                losses[r] = loss
            each(logits, at, logits, at, classes, t, x, (rest + top, wanted))
            if inside and owner == t:
                store(logits, at + label, hit)

    return kernel


@device
def picked(pitch, classes, target, ignore_index, n, notes):
    """Where scores[n, target[n]] is; -1 where the target is ignored, or no class, of
    which there is a note."""
    label = target[n]
    if label == ignore_index:
        return -1
    if label >= 0 and label < classes:
        return n * pitch + label
    bad_index(notes, NLL, label, classes, 1)
    return -1


@kernel(
    examples=[f"{t}[] int64 int64 int64[] int64 {t}[] int64[]" for t in TYPES],
    threads=BLOCK,
)
def nll_rows(scores, pitch, classes, target, ignore_index, losses, notes):
    """losses[n] = -scores[n, target[n]], or 0 where the target is ignored.

    # scores [N, C], rows `pitch` apart, target [N] -> losses [N]; a thread a row
    """
    n = cuda.grid(1)
    if n < target.size:
        place = picked(pitch, classes, target, ignore_index, n, notes)
        if place < 0:
            store(losses, n, 0)
        else:
            store(losses, n, -load(scores, place))


@kernel(examples=[f"{t}[] int64 int64[] int64 {t}[]" for t in TYPES], threads=BLOCK)
def nll_backward_flat(grad, step, target, ignore_index, dx):
    """dx[n, c] = -grad[n] where c is target[n], which is not ignored, else 0.

    # grad [N] (`step` 0: one for all rows), target [N] -> dx [N, C]; a thread a number
    """
    e = cuda.grid(1)
    if e < dx.size:
        n, c = split(e, dx.size // target.size)
        if target[n] == c and c != ignore_index:
            store(dx, e, -load(grad, n * step))
        else:
            store(dx, e, 0)


@kernel(examples=[f"{t}[] int64[]" for t in TYPES], threads=BLOCK)
def check_probabilities_flat(a, notes):
    """Leave a note if a number is not in [0, 1].

    # a [N]; a thread a number
    """
    i = cuda.grid(1)
    if i < a.size:
        x = load(a, i)
        if not (x >= 0 and x <= 1):
            bad_index(notes, PROBABILITIES, 0, 1, 0)


def mean_of_losses(dtype: DType, pick: bool) -> Callable:
    """The mean of the losses that count, and 1 / how many those are.

    # losses [N], target [N] -> mean [1], inverse [1]
    # or with `pick`: scores [N, C], rows `pitch` apart, whose losses are as `nll_rows`'

        mean = sum of losses[n] where target[n] != ignore_index, by their number

    One block: thread t adds losses t, t + BLOCK, ...; then the threads' sums are added
    as in `rows.summed`. As four kernels (compare, count, add, divide) a step of a small
    network would wait three times longer for them than they compute.
    """
    kind = dtype.numpy.type
    total = summed(BLOCK)
    zero, one, sign = kind(0), kind(1), kind(-1 if pick else 1)

    def kernel(
        losses, pitch, classes, target, ignore_index, mean, inverse, notes
    ):  # fmt: skip
        cells = cuda.shared.array(WARP, kind)
        counts = cuda.shared.array(WARP, kind)
        t = cuda.threadIdx.x
        loss, count = zero, zero
        for n in range(t, target.size, BLOCK):
            if target[n] != ignore_index:
                place = n
                if pick:
                    place = picked(pitch, classes, target, ignore_index, n, notes)
                if place >= 0:
                    loss += sign * losses[place]
                count += one
        loss = total(loss, t, cells)
        count = total(count, t, counts)
        if t == 0:
            mean[0] = loss / count
            inverse[0] = one / count

    return kernel


# ---------------------------------------------------------------------------- kernels

MEAN_OF_LOSSES = KernelFamily(
    mean_of_losses,
    "T[] int64 int64 int64[] int64 T[] T[] int64[]",
    *product((float32, float64), (False, True)),
)
OVER_CLASSES = (
    Fit(float32, 1, WARP, 4),
    Fit(float32, 4, BLOCK, ITEMS),
    Fit(float32, RAGGED, BLOCK, ITEMS),
    Fit(float64, 1, WARP, ITEMS),
)
CROSS_ENTROPY_ROWS = KernelFamily(
    cross_entropy_rows, "T[] int64 int64[] int64 int64 T[] T[] int64[]", *OVER_CLASSES
)
CROSS_ENTROPY_BACKWARD_ROWS = KernelFamily(
    cross_entropy_backward_rows,
    "T[] int64 T[] int64 int64[] T[] int64 int64 T[] int64",
    *OVER_CLASSES,
)  # fmt: skip

# Two blocks of large rows share a multiprocessor, if the assembler is told to. Halves
# are rounded so much that the GPU's own powers are exact enough.
_LARGE = Fit(float32, RAGGED, LARGE, ITEMS)
CROSS_ENTROPY_SLOPES_ROWS = {
    half: KernelFamily(
        cross_entropy_slopes_rows,
        f"{'bfloat16' if half else 'T'}[] int64 int64[] int64 int64 T[] int64[]",
        *(OVER_CLASSES[0], _LARGE),
        name=f"cross_entropy_slopes{'_of_halves' * half}",
        resident={_LARGE: 2},
        fastmath=half,
    )
    for half in (False, True)
}

# -------------------------------------------------------------------------- launchers


def _rows(a: TensorData) -> tuple[Any, int] | None:
    """A flat array in which the rows of a [N, C] begin at 0, and the elements from one
    to the next; None where a row has gaps, or none is behind the other."""
    if a.strides[1] != 1 or a.strides[0] < a.shape[1]:
        return None
    return a.storage.array[a.offset :], a.strides[0]


def _over_classes(classes: int, dtype: DType, pitch: int, *arrays: Any) -> Fit:
    """How the kernels of cross-entropy read rows of any length, part by part."""
    width = ragged_width(classes, pitch, dtype, *arrays)
    if classes <= 4 * WARP:
        return Fit(dtype, width, WARP, 4)
    return Fit(dtype, width, WARP if classes <= 2 * ITEMS * WARP else BLOCK, ITEMS)


def cross_entropy(
    logits: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

    Of half types both are float32.

    The IndexError for a target outside [0, C) comes at the next copy to the host or
    synchronization, so that no call waits for the GPU (`index_errors.py`).
    """
    count, classes = logits.shape
    dtype = computed(logits.dtype)
    losses, logsumexp = empty((count,), dtype), empty((count,), dtype)
    if count == 0:
        return losses, logsumexp
    x, pitch = losses.storage.array, 0
    if classes:
        x, pitch = _rows(logits) or (contiguous(logits).flat(), classes)
    fit = _over_classes(classes, dtype, pitch, x)
    CROSS_ENTROPY_ROWS[fit][fit.launch(count)](
        x, pitch, contiguous(target).flat(), ignore_index, classes,
        losses.storage.array, logsumexp.storage.array, notes(),
    )  # fmt: skip
    after_launch()
    return losses, logsumexp


def cross_entropy_slopes(
    logits: TensorData, target: TensorData, ignore_index: int
) -> TensorData:
    """Losses [N] of logits [N, C], which become the gradients of the sum of these.
    Errors as those of `cross_entropy`."""
    (count, classes), dtype = logits.shape, computed(logits.dtype)
    found, losses = _rows(logits), empty((count,), dtype)
    if found is None and logits.size:
        rows = copy(logits, logits.dtype)
        losses = cross_entropy_slopes(rows, target, ignore_index)
        copy_into(logits, rows)
    if found is None or not logits.size:
        return losses
    x, pitch = found
    fit = _over_classes(classes, dtype, pitch, x)
    if fit.group == BLOCK:
        fit = fit._replace(group=LARGE)
    CROSS_ENTROPY_SLOPES_ROWS[logits.dtype.half][fit][fit.launch(count)](
        x, pitch, contiguous(target).flat(), ignore_index, classes,
        losses.storage.array, notes(),
    )  # fmt: skip
    after_launch()
    return losses


def _each(grad: TensorData) -> tuple[Any, int]:
    """A flat array, and the steps in it from the gradient of one row to the next."""
    if grad.size and grad.strides == (0,):
        return grad.storage.array[grad.offset : grad.offset + 1], 0
    return contiguous(grad).flat(), 1


def mean_loss(
    losses: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """The mean [] of losses [N] with another target than `ignore_index`, and
    1 / count [], the weight of each of them in it."""
    return _mean(
        False, losses.dtype, contiguous(losses).flat(), 1, 0, target, ignore_index
    )


def _mean(
    pick: bool, dtype: DType, given: Any, pitch: int, classes: int, target: TensorData,
    ignore_index: int,
) -> tuple[TensorData, TensorData]:  # fmt: skip
    mean, inverse = empty((), dtype), empty((), dtype)
    MEAN_OF_LOSSES[dtype, pick][1, BLOCK](
        given, pitch, classes, contiguous(target).flat(), ignore_index,
        mean.storage.array, inverse.storage.array, notes(),
    )  # fmt: skip
    if pick:
        after_launch()
    return mean, inverse


def nll(scores: TensorData, target: TensorData, ignore_index: int) -> TensorData:
    """scores [N, C], target int64 [N] -> -scores[n, target[n]] [N], 0 for rows ignored;
    errors as those of `cross_entropy`."""
    out = empty(target.shape, scores.dtype)
    if out.size:
        x, pitch = _rows(scores) or (contiguous(scores).flat(), scores.shape[1])
        nll_rows[ceil_div(out.size, BLOCK), BLOCK](
            x, pitch, scores.shape[1], contiguous(target).flat(), ignore_index,
            out.storage.array, notes(),
        )  # fmt: skip
        after_launch()
    return out


def mean_nll(
    scores: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """`mean_loss` of what `nll` gives: for a few rows by one block, in one launch."""
    count, classes = scores.shape
    if not count or count > 16 * BLOCK:
        return mean_loss(nll(scores, target, ignore_index), target, ignore_index)
    x, pitch = _rows(scores) or (contiguous(scores).flat(), classes)
    return _mean(True, scores.dtype, x, pitch, classes, target, ignore_index)


def nll_backward(
    grad: TensorData, target: TensorData, classes: int, ignore_index: int
) -> TensorData:
    """-grad[n] at target[n] of row n [N, classes]; 0 elsewhere and in rows ignored."""
    dx = empty((target.shape[0], classes), grad.dtype)
    nll_backward_flat[ceil_div(dx.size, BLOCK), BLOCK](
        *_each(grad), contiguous(target).flat(), ignore_index, dx.storage.array
    )
    return dx


def check_probabilities(a: TensorData) -> None:
    """Raise `not_probabilities` when the GPU is next waited for."""
    flat = contiguous(a).flat()
    check_probabilities_flat[ceil_div(len(flat), BLOCK), BLOCK](flat, notes())
    after_launch()


def cross_entropy_backward(
    grad: TensorData,
    logits: TensorData,
    target: TensorData,
    logsumexp: TensorData,
    ignore_index: int,
    out: TensorData | None = None,
) -> TensorData:
    """grad[n] * (softmax(logits[n]) - onehot(target[n])), rows ignored are 0.

    Into `out` if given. Nothing is copied where rows lie behind each other, close or
    with a gap between them.
    """
    dx = out
    if dx is None or _rows(dx) is None:
        dx = empty(logits.shape, logits.dtype)
    if dx.size:
        count, classes = logits.shape
        x, pitch = _rows(logits) or (contiguous(logits).flat(), classes)
        z, dx_pitch = _rows(dx) or (dx.flat(), classes)
        fit = _over_classes(classes, computed(logits.dtype), pitch, x, z)
        if (pitch - dx_pitch) % 4:  # a row's vectors are none in the other array
            fit = fit._replace(width=1)
        CROSS_ENTROPY_BACKWARD_ROWS[fit][fit.launch(count)](
            *_each(grad), x, pitch, contiguous(target).flat(),
            contiguous(logsumexp).flat(), ignore_index, classes, z, dx_pitch,
        )  # fmt: skip
    if out is None or out is dx:
        return dx
    copy_into(out, dx)
    return out
