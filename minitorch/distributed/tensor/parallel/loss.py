"""Cross-entropy of scores whose classes are dealt out to ranks.

With this file a model with a large vocabulary never has all scores of a token in one
place: `vocab_parallel_cross_entropy(x, weight, target, 50_257, group)`, where each rank
has its rows of the weight. Nor has a rank all of its scores at a time: they are made,
and turned into gradients, some rows at a time, as those of one process are.

Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minitorch.distributed.collectives import all_reduce
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.rules import ReduceOp
from minitorch.distributed.tensor.parallel.layers import own_places
from minitorch.distributed.tensor.placement import part
from minitorch.dtypes import DType
from minitorch.functions.autocasting import lower_here
from minitorch.functions.linear_cross_entropy import (
    LinearCrossEntropyOptions,
    linear_cross_entropy,
)
from minitorch.functions.movement import stack
from minitorch.tensor import Tensor
from minitorch.tensor_data import TensorData

NONE = -(2**31)  # no target of anyone


def _learn(
    classes: int, group: ProcessGroup, backend: Any, scores: TensorData,
    label: TensorData, ignore: int, dtype: DType | None,
) -> TensorData:  # fmt: skip
    """losses[i] = log(sum of exp(scores[i, c]) over all ranks' c) - scores[i, t]

    grad_scores[i, c] = exp(scores[i, c] - log of that sum) - [c is t].

    Each rank takes the logarithm of its own sum; of these the largest is found, and
    exp(own - largest) added up, together with the score of the target, which one rank
    has. So three numbers a token are sent, however many classes there are.
    """
    target = Tensor(label)
    ignored = target == ignore
    rows = part(classes, group.rank(), group.size())
    mine, place = own_places(target.masked_fill(ignored, 0), rows, classes)
    none = ignore if ignore < 0 else NONE  # so that no wrong target passes for it
    own_losses, own = map(Tensor, backend.cross_entropy(scores, place.raw, none))
    largest = own.clone()
    all_reduce(largest, ReduceOp.MAX, group)
    picked = (own - own_losses).masked_fill(~mine, 0.0)
    sums = stack([(own - largest).exp(), picked])
    all_reduce(sums, group=group)
    total = sums[0].log() + largest
    if dtype is not None:
        # Rows without a target here seem to have class 0, and get its gradient back.
        first = (Tensor(scores)[:, 0].to(dtype) - total).exp()
        ones = (~ignored).to(dtype)
        backend.cross_entropy_backward(
            ones.raw, scores, place.raw, total.raw, none, scores
        )
        slope = Tensor(scores)[:, 0]
        slope.copy_(slope.where(mine | ignored, first))
    return (total - sums[1]).masked_fill(ignored, 0.0).raw


def vocab_parallel_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, classes: int, group: ProcessGroup,
    ignore_index: int = -100,
) -> Tensor:  # fmt: skip
    """The sum [] of the losses of all rows whose target is not ignored, the same on all
    ranks.

    x [N, K] -> scores x @ weight^T, weight [this rank's part of the classes, K],
    target int64 [N]. The gradient of x is that of this rank's scores.

    Args:
        classes: how many there are on all ranks together.

    Errors: ValueError for a weight that is not of this rank's classes.
    """
    own = len(part(classes, group.rank(), group.size()))
    if weight.dim() != 2 or len(weight) != own:
        raise ValueError(
            f"vocab_parallel_cross_entropy: the weight is {tuple(weight.shape)}; "
            f"expected ({own}, K), rank {group.rank()}'s part of {classes} classes"
        )
    # All ranks must take as many parts, also where one has a class more.
    most = -(-classes // group.size())
    rows = LinearCrossEntropyOptions().rows(len(x), most, lower_here(x))
    learn = partial(_learn, classes, group)
    return linear_cross_entropy(x, weight, target, ignore_index, False, rows, learn)
