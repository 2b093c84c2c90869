"""Layers of which each rank has a part.

With this file a linear layer or a table becomes one rank's part of it: the module stays
the same object, with the same names, and gets one of the classes here (`style.py`).

    column:  y_r = x @ A_r^T        A = [A_0; A_1]: each rank has some outputs
    row:     y = sum of x_r @ B_r^T  B = [B_0, B_1]: each rank has some inputs

A row layer behind a column layer needs nothing between the two: what a rank's columns
make is what its rows take. So an MLP, or attention, costs one sum in each direction.

Source: Shoeybi et al., "Megatron-LM", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.tensor.parallel.operators import leave, linear_into
from minitorch.distributed.tensor.placement import Placement, part
from minitorch.nn.dropout import Dropout
from minitorch.nn.embedding import Embedding
from minitorch.nn.functional import embedding, linear
from minitorch.nn.linear import Linear
from minitorch.random import default_generator, fork_rng
from minitorch.tensor import Tensor


class ColumnParallelLinear(Linear):
    """x [*, in] (or parts of it along a sequence) -> our part of y, [*, out / n]

    Weight and bias are cut along their first dimension.

    Attributes:
        inputs: how x lies on the ranks.
    """

    group: ProcessGroup
    inputs: Placement

    def forward(self, x: Tensor) -> Tensor:
        return linear_into(x, self.weight, self.bias, self.inputs, self.group)


class RowParallelLinear(Linear):
    """Our part of x, [*, in / n] -> y [*, out] (or parts of it along a sequence)

    The weight is cut along its second dimension; all have the bias, which is added
    once, to the sum.

    Attributes:
        outputs: how y shall lie on the ranks.
    """

    group: ProcessGroup
    outputs: Placement

    def forward(self, x: Tensor) -> Tensor:
        # BEGIN SOLUTION a13.4
        y = leave(linear(x, self.weight), self.outputs, self.group)
        return y if self.bias is None else y + self.bias
        # END SOLUTION a13.4


class VocabParallelEmbedding(Embedding):
    """ids [*] -> [*, d] (or parts of it), where each rank has some rows of the table.

    A rank looks up its own rows and has zeros for the others; then all are added.
    """

    group: ProcessGroup
    outputs: Placement

    def forward(self, x: Tensor) -> Tensor:
        rows = part(self.num_embeddings, self.group.rank(), self.group.size())
        mine, place = own_places(x, rows, self.num_embeddings)
        found = embedding(place, self.weight).masked_fill(~mine.unsqueeze(-1), 0.0)
        return leave(found, self.outputs, self.group)


class DropoutOfPart(Dropout):
    """Dropout of a sequence of which each rank has a part."""

    group: ProcessGroup

    def forward(self, x: Tensor) -> Tensor:
        with own_numbers(self.group):
            return super().forward(x)


@contextmanager
def own_numbers(group: ProcessGroup) -> Iterator[None]:
    """For a block, random numbers of each rank's own: what ranks have in parts is not
    dropped alike. Behind it all go on as one, if they drew as many.

    They follow from the place in the default generator's sequence, which must be the
    same on all ranks; who begins there again draws the same again.
    """
    seed = np.random.SeedSequence((default_generator.seed, group.rank()))
    own, place = int(seed.generate_state(1, np.uint64)[0]), default_generator.offset
    with fork_rng():
        default_generator.set_state({"seed": own, "offset": place})
        yield
        place = default_generator.offset
    default_generator.offset = place


def own_places(ids: Tensor, rows: range, size: int) -> tuple[Tensor, Tensor]:
    """Which ids are among `rows` of a table of `size`, and where: 0 for the others.

    What is no row of the whole table stays as it is, so that who looks there raises an
    IndexError that names it, on all ranks.
    """
    mine = (ids >= rows.start) & (ids < rows.stop)
    elsewhere = ~mine & (ids >= 0) & (ids < size)
    return mine, ids.masked_fill(elsewhere, 0) - rows.start * mine.long()
