"""The loss of a large vocabulary, some rows of scores at a time.

With this file one can train on scores that would not fit into memory. A language
model's last layer makes a score for each token of the vocabulary: 16 sequences of 1,024
have 823 million scores with GPT-2's 50,257 tokens, 3 GiB in float32, and as much again
for their gradient, while the rows they are made of take 48 MiB. But each row has a loss
of its own, and all losses have the same share in a sum or a mean. So
`LinearCrossEntropy` makes some rows of scores, their losses, and at once the gradients
of those, where the scores were; then their memory serves the next rows. Nothing is
computed twice.

(The name is PyTorch's. Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM
Training", 2024, describe the idea.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import minitorch.operators as operators
from minitorch import precision
from minitorch.dtypes import DType, computed, float32, int64
from minitorch.function import Context, Function, once_differentiable
from minitorch.functions.autocasting import float32_here
from minitorch.functions.linear import check_linear
from minitorch.functions.operands import cast, check_same_device, uncast
from minitorch.functions.reduce import dropped
from minitorch.tensor_data import TensorData

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

SCORES = 576 * 2**20  # bytes of scores that are there at a time, if nobody asks
Learn = Callable[[Any, TensorData, TensorData, int, DType | None], TensorData]
# Rows at a time are a multiple of this: tiles of a matrix product are then whole.
TILE = 256
# A row whose length is a multiple of this begins where vectors do.
WHOLE = 8


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How `functional.linear_cross_entropy` goes through its rows.

    Args:
        batch_chunk_size: the rows at a time; None: parts of one size, of at most
            576 MiB of scores, and all at once up to a quarter of that.
    """

    batch_chunk_size: int | None = None

    def __post_init__(self) -> None:
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(
                f"LinearCrossEntropyOptions: batch_chunk_size is {size!r}; expected a "
                f"whole number of rows, 1 or more, or None"
            )

    def rows(self, size: int, classes: int, dtype: DType) -> int:
        """How many of `size` rows of `classes` scores to make at a time."""
        most = self.batch_chunk_size or max(
            1, SCORES // max(1, classes * dtype.itemsize)
        )
        if self.batch_chunk_size or 4 * size <= most:
            return most
        rows = ceil(size / max(2, ceil(size / most)))
        return min(rows + -rows % TILE, most) if rows >= TILE else rows


class LinearCrossEntropy(Function):
    """The sum of cross_entropy(x @ weight^T, target), or its mean -> []

    x [N, K], weight [C, K], target [N], whose rows are taken `rows` at a time. The
    gradients are there after the forward pass; backward multiplies them with the
    loss's own and, for a mean, with 1 / count. Those of half types are summed up over
    the parts, and multiplied, in float32. `learn` is `losses_and_slopes`, or what does
    the same where others have the other classes.
    """

    writes = 1

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor, target: Tensor, ignore: int,
        mean: bool, rows: int, dtype: DType, learn: Learn,
    ) -> Any:  # fmt: skip
        backend, size, classes = x.backend, x.raw.shape[0], weight.raw.shape[0]
        w = _whole(weight.raw, backend)
        needs = ctx.needs_input_grad[:2] or (False, False)
        losses = backend.empty((size,), dtype)
        grad_x = backend.empty(x.raw.shape, x.dtype) if needs[0] else None
        grad_weight = None
        for start in range(0, size, rows):
            span = (0, start, min(rows, size - start))
            part, label = x.raw.slice(*span), target.raw.slice(*span)
            found, of_x, of_w = _part(
                backend, part, w, label, classes, ignore, needs, dtype, learn
            )
            backend.copy_into(losses.slice(*span), _as(dtype, found, backend))
            if grad_x is not None:
                backend.copy_into(grad_x.slice(*span), of_x)
            if of_w is not None:
                grad_weight = _sum(grad_weight, of_w, backend)
        if grad_weight is not None:
            grad_weight = grad_weight.slice(0, 0, classes)
        if mean:
            out, share = backend.mean_loss(losses, target.raw, ignore)
        else:
            out = dropped(backend.reduce(operators.add, losses, (0,), 0), (0,))
            share = backend.number(1.0, dtype)
        kept = (share, grad_x, grad_weight)
        ctx.save_for_backward(*(None if a is None else x.wrap(a) for a in kept))
        ctx.kinds = x.dtype, uncast(weight)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Any, ...]:
        once_differentiable(
            "linear_cross_entropy", "linear_cross_entropy(..., options=None)"
        )
        share, *made = ctx.saved_tensors
        share = share.where(share.isfinite(), 0.0)  # if all were ignored
        scale = cast(grad * share, computed(ctx.kinds[0])).raw

        def times_scale(a: Tensor | None, kind: DType, out: Any) -> Tensor | None:
            if a is None:
                return None
            out = out if a.dtype is kind else None
            product = a.backend.zip(operators.mul, a.raw, scale, a.dtype, out)
            return cast(a.wrap(product), kind)

        homes, ctx.home = (None, ctx.home), None
        grads = map(times_scale, made, ctx.kinds, homes)
        return *grads, None, None, None, None, None, None


def _part(
    backend: Any, x: TensorData, w: TensorData, label: TensorData, classes: int,
    ignore: int, needs: tuple[bool, ...], dtype: DType, learn: Learn,
) -> tuple[TensorData, TensorData | None, TensorData | None]:  # fmt: skip
    """Of some rows, the losses and the gradients for x and w, or None if not needed.

    When it returns, the memory of its scores is free for those of the next rows.
    """
    made = backend.matmul(x, w.permute((1, 0)))
    scores = made.slice(1, 0, classes)
    losses = learn(backend, scores, label, ignore, dtype if any(needs) else None)
    return (
        losses,
        backend.matmul(made, w) if needs[0] else None,
        backend.matmul(made.permute((1, 0)), x) if needs[1] else None,
    )


def losses_and_slopes(
    backend: Any, scores: TensorData, label: TensorData, ignore: int,
    dtype: DType | None,
) -> TensorData:  # fmt: skip
    """scores [N, C], label [N] -> losses [N]; with a dtype, that of losses, then the
    gradients of their sum are where the scores were."""
    if dtype is None:
        return backend.cross_entropy(scores, label, ignore)[0]
    return backend.cross_entropy_slopes(scores, label, ignore)


def _whole(w: TensorData, backend: Any) -> TensorData:
    """w [C, K], with rows of zeros behind it up to a multiple of WHOLE, if it is of
    halves or may be rounded to TF32.

    Scores of those, and their gradients, are 0 and remain so. With them, rows of scores
    need no copy for tensor cores to read them.
    """
    (classes, size), dtype = w.shape, w.storage.dtype
    tf32 = precision.state.allow_tf32 and not backend.host_memory  # as GPUs do
    if not (dtype.half or (dtype is float32 and tf32)) or classes % WHOLE == 0:
        return w
    more = -classes % WHOLE
    out = backend.empty((classes + more, size), dtype)
    backend.copy_into(out.slice(0, 0, classes), w)
    backend.copy_into(out.slice(0, classes, more), backend.full((more, size), 0, dtype))
    return out


def _as(dtype: DType, a: TensorData, backend: Any) -> TensorData:
    return a if a.dtype is dtype else backend.copy(a, dtype)


def _sum(whole: TensorData | None, part: TensorData, backend: Any) -> TensorData:
    """whole + part, in the memory of the whole."""
    if whole is None or "zip" not in backend.takes_half:
        part = _as(computed(part.dtype), part, backend)
    if whole is None:
        return part
    return backend.zip(operators.add, whole, part, out=whole)


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, ignore_index: int, mean: bool, rows: int,
    learn: Learn = losses_and_slopes,
) -> Tensor:  # fmt: skip
    """The loss [] of x [N, K] with weight [C, K] and class numbers target [N]."""
    name = "linear_cross_entropy"
    check_linear(name, x, weight, None)
    check_same_device(name, x, target)
    if target.raw.shape != x.raw.shape[:1]:
        raise ValueError(
            f"{name}: the input is {x.raw.shape} and the target {target.raw.shape}; "
            f"expected (N, K) and (N,)"
        )
    dtype = float32_here(x)
    return LinearCrossEntropy.apply(
        x, weight, cast(target, int64), ignore_index, mean, rows, dtype, learn
    )
