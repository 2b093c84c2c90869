"""What a GPU holds while it trains, by kind.

With this file one can say what a library keeps of each parameter and each token
(`Engine`), and add that up for the fullest stage of a layout (`memory`).

Sources: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion
parameter models", 2020; Korthikanti et al., "Reducing activation recomputation in large
transformer models", 2022.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from minitorch.distributed.planner.layout import Layout, split_layers
from minitorch.distributed.planner.models import Model
from minitorch.functions.linear_cross_entropy import SCORES

GIB = 2**30
KINDS = (
    "parameters", "gradients", "optimizer", "activations", "logits", "buffers",
    "fragments",
)  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """What a library keeps, in bytes.

    Attributes:
        weights, gradients, optimizer: for a parameter.
        shared: for a token, a layer and a number of its width, of what tensor parallel
            ranks all hold, unless they split the sequence between them as well.
        hidden, keys, units: for a token and a layer, of what these ranks share out: of
            each number of the width, of the keys and values, and of the MLP's units.
        scores: for each score of a head of attention; FlashAttention keeps none.
        gathered: as `shared`, but held whole in spite of a split sequence; only
            without a pipeline.
        flight: for a number of the width of each micro-batch that is under way.
        logits: for a score of the vocabulary.
        scores_at_once: how many scores there are at a time; if fewer than all, the
            gradient of their table is there beside them, in float32.
        fixed: for a process.
        fragments: what the allocator cannot use, as a share of the activations.
        sequence_parallel: whether tensor parallel ranks split the sequence.
        size: bytes of a number in products; those of 4 (TF32) take twice as long.
        measured: whether it is that of the measured runs, whose time between kernels
            counts as well, and which deals layers to stages in its own way.
    """

    name: str
    weights: float = 2
    gradients: float = 2
    optimizer: float = 12
    shared: float = 8
    hidden: float = 4
    keys: float = 4
    units: float = 6
    scores: float = 0
    gathered: float = 0
    flight: float = 2
    logits: float = 4
    scores_at_once: float = math.inf
    fixed: float = 0
    fragments: float = 0.05
    sequence_parallel: bool = True
    size: int = 2
    measured: bool = False

    def split(self, model: Model, layout: Layout) -> tuple[tuple[int, ...], int]:
        """The layers of each stage, and the stage of the head."""
        return split_layers(model, layout.pp, layout.virtual, self.measured)

    def states(self, zero: int, ranks: int) -> tuple[float, float, float]:
        """Bytes of a parameter, its gradient and its optimizer's state, by ZeRO stage.

        Mixed precision with Adam: 16; 4 + 12 / d; 2 + 14 / d; 16 / d.
        """
        # BEGIN SOLUTION a13.6
        return (
            self.weights / (ranks if zero >= 3 else 1),
            self.gradients / (ranks if zero >= 2 else 1),
            self.optimizer / (ranks if zero >= 1 else 1),
        )
        # END SOLUTION a13.6

    def layer(self, model: Model, layout: Layout, sequence: int) -> float:
        """Bytes that a layer keeps of a token, on each of the ranks that share it.

        With the numbers of MIXED_DROPOUT, for GPT-2's shape of f = 4 h: s b h times
        10 + 24 / t + 5 a s / (h t); all of it / t where the sequence is split, too.
        """
        # BEGIN SOLUTION a13.6
        if layout.recompute:
            return 2.0 * model.hidden / (layout.tp if self.sequence_parallel else 1)
        split = self.hidden * model.hidden + self.keys * model.kv
        split += self.units * model.ffn + self.scores * model.heads * sequence
        whole = self.shared * model.hidden
        kept = self.gathered * model.hidden if layout.pp == 1 and layout.tp > 1 else 0
        parts = layout.tp if self.sequence_parallel else 1
        return kept + split / layout.tp + whole / parts
        # END SOLUTION a13.6


# What papers count for mixed precision; GPT-2's shape keeps inputs and outputs of GELU.
MIXED = {
    "llama": Engine("mixed"),
    "gpt2": Engine("mixed", units=4),
}
# The same with dropout, whose masks are kept, and with all scores of attention.
MIXED_DROPOUT = Engine(
    "mixed-dropout", shared=10, units=4, scores=5, sequence_parallel=False
)

# nanotron, whose runs were measured: gradients in bfloat16 and, for sums, in float32.
# `hidden` to `fixed` were fitted by `minitorch.distributed.planner.calibrate`.
MEASURED = Engine(
    "nanotron", gradients=6, shared=0, hidden=31.2, keys=0, units=5.85, gathered=3.82,
    flight=1.49, logits=7.86, fixed=0.217 * GIB, fragments=0, measured=True,
)  # fmt: skip


def engine(name: str, model: Model) -> Engine:
    """What is counted: "mixed" (mixed precision with Adam, as in papers), "measured"
    (the library of the measured runs), or this library: "float32" or "autocast".

    The graph of ours holds what a backward pass needs. For each number of its width a
    layer of GPT-2's shape has 16: 2 of the stream, 2 of norms, 3 queries, keys and
    values, 1 of attention, 8 of GELU. Under autocast all but those of the stream are
    halves, and weights have a copy. Then there are scores of the vocabulary, their
    gradient, and on tensor cores a copy of that, if it is of halves that make no whole
    vectors of 8. `linear_cross_entropy` makes some rows of them at a time, and the
    gradient in their place. Tensor parallel ranks all have the stream, the norms and
    the inputs of products, as `minitorch train gpt --tp` lays them out.
    """
    if name in ("mixed", "measured"):
        return MEASURED if name == "measured" else MIXED[model.shape]
    if name not in ("float32", "autocast"):
        raise ValueError(
            f"plan: engine is {name!r}; expected mixed, measured, float32 or autocast"
        )
    half, gpt2 = name == "autocast", model.shape == "gpt2"
    shared, hidden, keys, units = {
        (False, True): (16, 8, 8, 8), (True, True): (12, 4, 4, 4),
        (False, False): (20, 12, 12, 16), (True, False): (14.5, 6, 6, 8),
    }[half, gpt2]  # fmt: skip
    logits = (4 + 2 * (model.vocabulary % 8 != 0)) if half else 8
    return Engine(
        name, 6 if half else 4, 4, 8, shared, hidden, keys, units, flight=8,
        logits=logits, scores_at_once=SCORES / (2 if half else 4), fragments=0,
        sequence_parallel=False, size=2 if half else 4,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def memory(
    model: Model, layout: Layout, sequence: int, engine: Engine
) -> Mapping[str, float]:
    """GiB of each of KINDS, on a GPU of the stage that needs most."""
    parts = [_stage(model, layout, sequence, engine, i) for i in range(layout.pp)]
    return max(parts, key=lambda part: sum(part.values()))


def stage_parameters(model: Model, layout: Layout, engine: Engine, stage: int) -> float:
    """Parameters on each rank of a stage."""
    # BEGIN SOLUTION a13.6
    layers, head = engine.split(model, layout)
    tables = model.table * ((stage == 0) + (stage == head))
    if layout.pp == 1 and model.tied:
        tables = model.table
    first = model.positions * model.hidden * (stage == 0)
    return (layers[stage] * model.layer + tables + first) / layout.tp
    # END SOLUTION a13.6


def _stage(
    model: Model, layout: Layout, sequence: int, engine: Engine, stage: int
) -> dict[str, float]:
    layers, head = engine.split(model, layout)
    tokens = sequence * layout.micro_batch / layout.cp
    parameters = stage_parameters(model, layout, engine, stage)
    states = engine.states(layout.zero, layout.dp * layout.cp)
    kept = tokens * engine.layer(model, layout, sequence)
    passing = tokens * engine.flight * model.hidden
    activations = in_flight(layout, stage) * (layers[stage] * kept + passing)
    buffers = 0.0
    if layout.recompute:  # one layer is there whole, while it is computed again
        plain = Layout(tp=layout.tp, pp=layout.pp, cp=layout.cp)
        activations += tokens * engine.layer(model, plain, sequence)
    if layout.zero == 3:  # the layer at work, and the next
        buffers += 2 * (engine.weights + engine.gradients) * model.layer / layout.tp
    if layout.pp > 1:  # what comes and what goes, with its gradient
        buffers += 4 * 2 * tokens * model.hidden / layout.tp
        if not engine.measured:  # and the gradient of the units that are at work
            buffers += engine.size * tokens * model.ffn / layout.tp
    scores = tokens * model.vocabulary / layout.tp
    logits = tokens * engine.logits * model.hidden / layout.tp
    most = engine.scores_at_once
    if math.isinf(most) or (layout.tp == 1 and 4 * scores <= most):
        logits += engine.logits * scores
    else:
        parts = 1 if 4 * scores <= most else max(2, math.ceil(scores / most))
        logits += 4 * model.vocabulary * model.hidden / layout.tp
        logits += engine.size * scores / parts  # and gradients, in their place
    values = (
        *(parameters * size for size in states),
        activations,
        logits if stage == head else 0.0,
        buffers + engine.fixed,
        engine.fragments * activations,
    )
    return {kind: value / GIB for kind, value in zip(KINDS, values)}


def in_flight(layout: Layout, stage: int) -> float:
    """Micro-batches whose activations a stage holds at once, by 1F1B; with several
    parts a stage has begun all but one of them with `pp` more before it turns back."""
    # BEGIN SOLUTION a13.6
    p, v = layout.pp, layout.virtual
    most = p - stage if v == 1 else p + (p - 2 * stage - 1) / v
    return min(layout.micro_batches, most)
    # END SOLUTION a13.6
