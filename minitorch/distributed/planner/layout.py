"""How a model is cut: `Layout`, and which layers each stage of a pipeline gets.

With this file one can describe what many GPUs do together (`Layout(dp=8, tp=4, pp=2)`)
and deal layers to stages (`split_layers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from minitorch.distributed.planner.models import Model


@dataclass(frozen=True)
class Layout:
    """What each GPU has of the model, the batch and the sequence.

    Attributes:
        dp, tp, pp, cp: ranks along data, tensor, pipeline and context (sequence).
        zero: the ZeRO stage: 1 shards the optimizer's state over dp * cp, 2 the
            gradients too, 3 the parameters too.
        micro_batch: sequences that go through at once.
        micro_batches: how many of them a rank makes in a step.
        recompute: keep only the inputs of layers, and compute the rest again.
        virtual: parts of the model a stage has, one behind the other (interleaving).
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    zero: int = 0
    micro_batch: int = 1
    micro_batches: int = 1
    recompute: bool = False
    virtual: int = 1

    @property
    def gpus(self) -> int:
        """How many GPUs this takes."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def sequences(self) -> int:
        """Sequences of a step."""
        return self.dp * self.micro_batch * self.micro_batches

    def __str__(self) -> str:
        names = {"dp": self.dp, "tp": self.tp, "pp": self.pp, "cp": self.cp}
        cut = " x ".join(f"{name}{n}" for name, n in names.items() if n > 1) or "one"
        cut += f" x v{self.virtual}" if self.virtual > 1 else ""
        return (
            f"{cut}, ZeRO {self.zero}, {self.micro_batch} x {self.micro_batches}"
            f"{', recompute' if self.recompute else ''}"
        )


@lru_cache(maxsize=1024)
def split_layers(
    model: Model, stages: int, virtual: int = 1, greedy: bool = False
) -> tuple[tuple[int, ...], int]:
    """How many layers each stage has, and which stage has the head.

    A large vocabulary makes the head worth several layers: the last stage has so many
    layers fewer that the slowest stage is as fast as can be, but one at least; and as
    many as the others where stages have several parts. With `greedy` blocks are dealt
    in order, by their products, and the one with which a stage reaches more than its
    share is its last: then the first stage has one more, and stages behind the head
    can stay empty.
    """
    count, head = model.layers, model.table / model.matrices
    if greedy:
        layers, stage = [0] * stages, 0
        for done in range(1, count + 1):
            layers[stage] += 1
            while stage < stages - 1 and done * stages > (count + head) * (stage + 1):
                stage += 1
        return tuple(layers), stage
    rest = max(stages - 1, 1)
    last = max(1, count // stages)
    if stages > 1 and virtual == 1:
        last = min(
            range(last, 0, -1), key=lambda n: max(-(-(count - n) // rest), n + head)
        )
    each, more = divmod(count - last, rest)
    dealt = [each + 1] * more + [each] * (stages - 1 - more) + [last]
    return tuple(dealt), stages - 1
