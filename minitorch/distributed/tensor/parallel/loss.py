"""Cross-entropy of scores whose classes are dealt out to ranks.

With this file a model with a large vocabulary never has all scores of a token in one
place: `vocab_parallel_cross_entropy(scores, target, 50_257, group)`.

Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from typing import Any

from minitorch.creation import arange, empty_like
from minitorch.distributed.collectives import all_reduce
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.rules import ReduceOp
from minitorch.distributed.tensor.parallel.layers import own_places
from minitorch.distributed.tensor.placement import part
from minitorch.function import UserFunction
from minitorch.functions.linear_cross_entropy import LinearCrossEntropyOptions
from minitorch.functions.movement import stack
from minitorch.tensor import Tensor

NOBODY = -1  # no row is left out: those of other ranks have scores here, too


class VocabParallelCrossEntropy(UserFunction):
    """losses[i] = log(sum of exp(scores[i, c]) over all ranks' c) - scores[i, t]

    grad_scores[i, c] = grad[i] * (exp(scores[i, c] - log of that sum) - [c is t]).

    Each rank takes the logarithm of its own sum; of these the largest is found, and
    exp(own - largest) added up, together with the score of the target, which one rank
    has. So three numbers a token are sent, however many classes there are.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, mine: Tensor, place: Tensor, group: ProcessGroup
    ) -> Tensor:
        found = scores.backend.cross_entropy(scores.raw, place.raw, NOBODY)
        own_losses, own = map(scores.wrap, found)
        largest = own.clone()
        all_reduce(largest, ReduceOp.MAX, group)
        picked = own - own_losses
        sums = stack([(own - largest).exp(), picked.masked_fill(~mine, 0.0)])
        all_reduce(sums, group=group)
        total = sums[0].log() + largest
        ctx.save_for_backward(scores, total, picked, place, mine)
        return total - sums[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        scores, total, picked, place, mine = ctx.saved_tensors
        picked = ((picked - total).exp() - mine.to(picked.dtype)) * grad
        slope, count = empty_like(scores), len(place)
        rows = LinearCrossEntropyOptions().rows(count, scores.shape[1], scores.dtype)
        for start in range(0, count, rows):  # what is changed by index may be widened
            some = slice(start, start + rows)
            of_some = (x[some].raw for x in (grad, scores, place, total))
            piece = scores.wrap(scores.backend.cross_entropy_backward(*of_some, NOBODY))
            piece[arange(len(piece), device=piece.device), place[some]] = picked[some]
            slope[some] = piece
        return slope, None, None, None


def vocab_parallel_cross_entropy(
    scores: Tensor, target: Tensor, classes: int, group: ProcessGroup,
    ignore_index: int = -100,
) -> Tensor:  # fmt: skip
    """The loss of each row, the same on all ranks: 0 where the target is ignored.

    scores [N, this rank's part of the classes], target int64 [N] -> [N]

    Args:
        classes: how many there are on all ranks together.

    Errors: ValueError for a number of scores that is not that of this rank's classes.
    """
    rows = part(classes, group.rank(), group.size())
    if scores.dim() != 2 or scores.shape[1] != len(rows):
        raise ValueError(
            f"vocab_parallel_cross_entropy: scores are {tuple(scores.shape)}; expected "
            f"(N, {len(rows)}), rank {group.rank()}'s part of {classes} classes"
        )
    ignored = target == ignore_index
    mine, place = own_places(target.masked_fill(ignored, 0), rows, classes)
    losses = VocabParallelCrossEntropy.apply(scores, mine, place, group)
    return losses.masked_fill(ignored, 0.0)
