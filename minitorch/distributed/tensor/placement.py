"""Where the parts of a tensor are.

With this file one can say that each rank has all of a tensor (`Replicate()`) or a part
along one dimension (`Shard(0)`), cut a parameter into such parts (`Cut`), and know of
every parameter that ranks share which numbers each of them has (`layouts`): enough to
put a whole together, or to take a part of one, whoever had cut it, and how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from minitorch.autodiff import no_grad
from minitorch.creation import empty
from minitorch.distributed.collectives import all_reduce, broadcast
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.rules import ReduceOp
from minitorch.functions.movement import cat
from minitorch.tensor import Tensor

Shape = tuple[int, ...]
Box = tuple[Shape, Shape]  # where it begins in a tensor, and its sizes


@dataclass(frozen=True)
class Replicate:
    """Each rank has the whole tensor."""


@dataclass(frozen=True)
class Shard:
    """Each rank has a part along dimension `dim`, in the order of ranks."""

    dim: int


Placement = Replicate | Shard


def part(size: int, rank: int, n: int) -> range:
    """What of `size` rows belongs to a rank: parts differ by one row at most."""
    return range(rank * size // n, (rank + 1) * size // n)


def at(box: Box) -> tuple[slice, ...]:
    """The index of a box."""
    return tuple(slice(start, start + size) for start, size in zip(*box))


@dataclass(frozen=True)
class Others:
    """Who has the rest of a part, for the norm of gradients (`nn.utils.others`)."""

    group: ProcessGroup
    device: str

    def over_ranks(self, number: Tensor, largest: bool) -> Tensor:
        """The sum, or the largest, of a number of each rank."""
        total = number.to(self.device).clone()
        all_reduce(total, ReduceOp.MAX if largest else ReduceOp.SUM, self.group)
        return total.to(number.device)


@dataclass(frozen=True)
class Layout:
    """Which boxes of a tensor each rank of a group has.

    Attributes:
        shape: of the whole.
        boxes: of each rank.
        dim: along which a rank's boxes lie side by side in its tensor; None: one behind
            the other, in a tensor of one dimension.
        group: the ranks.
        device: where a whole is put together.
    """

    shape: Shape
    boxes: tuple[tuple[Box, ...], ...]
    dim: int | None
    group: ProcessGroup
    device: str

    @property
    def others(self) -> Others:
        """The ranks that have the other boxes."""
        return Others(self.group, self.device)

    def pieces(self, mine: Tensor) -> list[tuple[Box, Tensor]]:
        """This rank's boxes, as views of its tensor."""
        found, start = list[tuple[Box, Tensor]](), 0
        for box in self.boxes[self.group.rank()]:
            sizes = box[1]
            count = prod(sizes) if self.dim is None else sizes[self.dim]
            view = mine.narrow(self.dim or 0, start, count)
            found.append((box, view.view(sizes) if self.dim is None else view))
            start += count
        return found

    def part(self, whole: Any) -> Tensor:
        """This rank's part, in memory of its own. `whole` is a tensor, or what returns
        one for a tuple of slices."""
        found = [whole[at(box)] for box in self.boxes[self.group.rank()]]
        if self.dim is None:
            found = [empty(0, dtype=whole.dtype), *(x.flatten().cpu() for x in found)]
        return cat(found, self.dim or 0)

    @no_grad()
    def whole(self, mine: Tensor) -> Tensor:
        """All parts together, on all ranks of the group, which all must call this."""
        out = empty(self.shape, dtype=mine.dtype, device=self.device)
        for rank, number in enumerate(self.group.ranks):
            own = rank == self.group.rank()
            views = [x for _, x in self.pieces(mine)] if own else []
            for i, box in enumerate(self.boxes[rank]):
                mold = views[i].to(self.device) if own else out[at(box)].clone()
                piece = mold.contiguous()
                broadcast(piece, number, self.group)
                out[at(box)] = piece
        return out


def layout_of(p: Tensor) -> Layout | None:
    """How ranks share a parameter; None: each rank has all of it."""
    return getattr(p, "dealt", None)


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor that is dealt out, and what of it is here."""

    layout: Layout
    local: Tensor

    @property
    def shape(self) -> Shape:
        """Of the whole."""
        return self.layout.shape


@dataclass(frozen=True)
class Cut:
    """A parameter in parts, of which this rank has one.

    Attributes:
        dim: along which it is cut.
        blocks: sizes along `dim` of what lies side by side in the whole, such as
            queries, keys and values: each block is cut by itself.
        group: who has the other parts.

    Errors: ValueError for a block with fewer rows than there are ranks.
    """

    dim: int
    blocks: tuple[int, ...]
    group: ProcessGroup

    def __post_init__(self) -> None:
        if min(self.blocks) < self.group.size():
            raise ValueError(
                f"Cut: {min(self.blocks)} row(s) cannot be cut for "
                f"{self.group.size()} ranks; use fewer ranks for this layer"
            )

    def layout(self, whole: Tensor) -> Layout:
        """Which parts ranks get of a tensor."""
        ranks, shape = range(self.group.size()), tuple(whole.shape)
        boxes = tuple(self._boxes(shape, rank) for rank in ranks)
        return Layout(shape, boxes, self.dim, self.group, whole.raw.device)

    def _boxes(self, shape: Shape, rank: int) -> tuple[Box, ...]:
        """Where a rank's rows of each block begin in the whole, and their sizes."""
        # BEGIN SOLUTION a13.4
        start, found = 0, list[Box]()
        for size in self.blocks:
            mine = part(size, rank, self.group.size())
            offsets, sizes = [0] * len(shape), list(shape)
            offsets[self.dim], sizes[self.dim] = start + mine.start, len(mine)
            found.append((tuple(offsets), tuple(sizes)))
            start += size
        return tuple(found)
        # END SOLUTION a13.4


def boxes_of(shape: Sequence[int], low: int, high: int) -> list[Box]:
    """The numbers from `low` to `high` of a tensor, counted row by row, as boxes."""
    if not shape and low < high:
        return [((), ())]
    row, found = prod(shape[1:]), list[Box]()
    while low < high:
        i, within = divmod(low, row)
        rows = (high - low) // row
        if within == 0 and rows:
            found.append(((i, *[0] * len(shape[1:])), (rows, *shape[1:])))
            low += rows * row
        else:
            end = min(high, (i + 1) * row)
            inner = boxes_of(shape[1:], within, within + end - low)
            found += [((i, *start), (1, *sizes)) for start, sizes in inner]
            low = end
    return found
