"""Gradients as products of thin matrices, and what is lost comes with the next.

With this file a gradient [n, m] costs (n + m) r numbers between ranks, r = 1 or 2 say:

    model.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2),
                             powerSGD_hook)

M, the gradient and the error of the last step, becomes P Q^T by one step of the power
method, which begins with the Q of the last step:

    P = mean of all M Q, its columns made orthonormal          [n, r]
    Q = mean of all M^T P                                      [m, r]
    error = M - P Q^T                                          stays on its rank

Source: Vogels, Karimireddy and Jaggi, "PowerSGD: Practical low-rank gradient
compression for distributed optimization", 2019.
"""

from __future__ import annotations

import numpy as np

from minitorch.creation import from_numpy
from minitorch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    mean_of_all,
)
from minitorch.distributed.collectives import Group
from minitorch.distributed.group import Future
from minitorch.nn.parallel.reducer import Bucket
from minitorch.tensor import Tensor


class PowerSGDState:
    """What stays from step to step, by the number of a parameter.

    Args:
        process_group: the ranks; all, if None.
        matrix_approximation_rank: columns of P and Q.
        start_powerSGD_iter: steps before it, whose gradients are sent as they are.
        min_compression_rate: a gradient is only compressed to this part or less.
        use_error_feedback: add what was lost to the next gradient.
        warm_start: begin with the last Q, and not with a random one.
        orthogonalization_epsilon: is added to the lengths of P's columns.
        random_seed: of the first Q, which is that of all ranks.

    Raises:
        ValueError: the rank is below 1.
    """

    def __init__(
        self,
        process_group: Group = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
    ) -> None:
        if matrix_approximation_rank < 1:
            raise ValueError(
                f"PowerSGDState: matrix_approximation_rank is "
                f"{matrix_approximation_rank}; expected 1 or more"
            )
        self.process_group, self.rank = process_group, matrix_approximation_rank
        self.start, self.rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.epsilon, self.seed, self.iter = orthogonalization_epsilon, random_seed, 0
        self.errors: dict[int, Tensor] = {}
        self.last: dict[int, Tensor] = {}  # Q
        self.total_numel_before = self.total_numel_after = 0

    def pays(self, matrix: Tensor) -> bool:
        """Whether so few numbers are sent that it is worth it."""
        n, m = matrix.shape
        return (n + m) * self.rank * self.rate < n * m

    def begin(self, i: int, matrix: Tensor) -> Tensor:
        """The Q [m, r] to begin with."""
        if not (self.warm_start and i in self.last):
            rng = np.random.default_rng((self.seed, self.iter, i))
            drawn = from_numpy(rng.standard_normal((matrix.shape[1], self.rank)))
            self.last[i] = drawn.to(matrix.raw.device, matrix.dtype)
        return self.last[i]

    def compression_stats(self) -> tuple[float, int, int]:
        """How many times fewer numbers were sent; the numbers there were, and sent."""
        before, after = self.total_numel_before, self.total_numel_after
        return before / max(after, 1), before, after


def powerSGD_hook(state: PowerSGDState, bucket: Bucket) -> Future:
    """The bucket whose matrices are P Q^T of the mean; vectors are sent as they are."""
    group, whole = state.process_group, state.iter < state.start
    if bucket.is_last():
        state.iter += 1
    if whole:
        return allreduce_hook(group, bucket)
    wide = {
        i: place.flatten(1) for i, place in bucket.places.items() if place.dim() > 1
    }
    matrices = {i: matrix for i, matrix in wide.items() if state.pays(matrix)}
    vectors = [place for i, place in bucket.places.items() if i not in matrices]
    for i, matrix in matrices.items():
        if i in state.errors:
            matrix.add_(state.errors[i])
    ps = [matrix @ state.begin(i, matrix) for i, matrix in matrices.items()]
    first = mean_of_all(_joined([*vectors, *ps]), group)

    def decompress(done: Future) -> Tensor:
        _spread(done.value(), [*vectors, *ps])
        bases = [orthonormal(p, state.epsilon) for p in ps]
        qs = [m.t() @ p for m, p in zip(matrices.values(), bases)]
        if qs:
            _spread(mean_of_all(_joined(qs), group).wait(), qs)
        for (i, matrix), p, q in zip(matrices.items(), bases, qs):
            product = p @ q.t()
            if state.use_error_feedback:
                state.errors[i] = matrix - product
            state.last[i] = q
            matrix.copy_(product)
        state.total_numel_before += sum(x.numel() for x in bucket.places.values())
        state.total_numel_after += sum(x.numel() for x in [*vectors, *ps, *qs])
        return bucket.buffer()

    return first.then(decompress)


def _joined(parts: list[Tensor]) -> Tensor:
    return Tensor.cat([x.reshape(-1) for x in parts])


def _spread(flat: Tensor, parts: list[Tensor]) -> None:
    """Copy the numbers of `flat` back into its parts."""
    start = 0
    for x in parts:
        x.copy_(flat[start : start + x.numel()].view(x.raw.shape))
        start += x.numel()


def orthonormal(p: Tensor, epsilon: float = 0) -> Tensor:
    """The columns of p [n, r], one after the other made orthogonal to those before, of
    length 1 (Gram and Schmidt); one of zeros stays so."""
    columns: list[Tensor] = []
    for k in range(p.shape[1]):
        column = p[:, k]
        for other in (*columns, *columns):  # once more: what is left may be rounding
            column = column - other * (other * column).sum()
        columns.append(column / (column.norm() + epsilon).clamp(min=1e-30))
    return Tensor.stack(columns, 1)
