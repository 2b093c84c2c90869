"""Models that begin alike on all ranks, or an error that names the difference.

With this file a rank compares its tensors with those of the others (`check_alike`), and
takes over the numbers of one of them (`give`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.distributed.collectives import broadcast
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.objects import all_gather_object
from minitorch.tensor import Tensor


def check_alike(
    caller: str, named: Iterable[tuple[str, Tensor]], group: ProcessGroup
) -> None:
    """A RuntimeError on all ranks, which names the first difference, if names, shapes,
    dtypes or what is frozen differ."""
    mine = [(n, tuple(x.shape), x.dtype.name, x.requires_grad) for n, x in named]
    every: list[Any] = [None] * group.size()
    all_gather_object(every, mine, group)
    for rank, theirs in enumerate(every):
        for i in range(max(len(theirs), len(every[0]))):
            here, there = every[0][i : i + 1], theirs[i : i + 1]
            if here != there:
                raise RuntimeError(
                    f"{caller}: parameter or buffer {i} is "
                    f"{_told(here)} on rank {group.ranks[0]}, and {_told(there)} on "
                    f"rank {group.ranks[rank]}; all ranks must make the same model"
                )


def _told(entry: list[tuple[str, tuple[int, ...], str, bool]]) -> str:
    if not entry:
        return "missing"
    name, shape, dtype, learns = entry[0]
    return f"{name} {shape} {dtype}{'' if learns else ', frozen'}"


@no_grad()
def give(tensors: Iterable[Tensor], group: ProcessGroup, root: int = 0) -> None:
    """The numbers of rank `root` of the group to all."""
    give_all([(x, root) for x in tensors], group)


@no_grad()
def give_all(tensors: Iterable[tuple[Tensor, int]], group: ProcessGroup) -> None:
    """The numbers of each tensor, of the rank of the group beside it, to all."""
    sent: list[Any] = []
    for x, root in tensors:
        whole = x.detach().contiguous()
        sent.append(
            (broadcast(whole, group.ranks[root], group, async_op=True), x, whole)
        )
    for work, x, whole in sent:
        work.wait()
        if whole.raw.storage is not x.raw.storage:
            x.detach().copy_(whole)
