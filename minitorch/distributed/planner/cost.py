"""How long a step takes, part by part.

With this file one can predict a layout's speed and memory (`estimate`). The form of
each term is that of a formula; the numbers in `Constants` were fitted to measured runs
by `minitorch.distributed.planner.calibrate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from minitorch.distributed.planner.hardware import Gpu
from minitorch.distributed.planner.layout import Layout
from minitorch.distributed.planner.memory import Engine, memory, stage_parameters
from minitorch.distributed.planner.models import Model

FULL = 0.9  # of the memory; a round number


@dataclass(frozen=True)
class Constants:
    """What no data sheet says. Shares are of the GPU's own numbers; times in seconds.

    Attributes:
        products: the share of the peak that large matrix products reach.
        half_width: the width of a rank's matrices, and the number of its tokens, at
            which they reach half of that.
        scores: the share of the peak that attention reaches.
        traffic: bytes read and written for a token, a layer and a number of its width
            by what is no product, forward and backward.
        logit_traffic: the same for a score of the vocabulary.
        host: the least time of a layer, forward and backward, which is that of its
            calls; hop: more of it for each further node of a tensor parallel group.
        pipeline, pipeline_power: in a pipeline over several nodes, more of it for a
            tensor parallel group of n ranks: pipeline * n ** pipeline_power.
        link: the share of its bandwidth that a link reaches for activations.
        gradients: the same for gradients; ring: what they take more with ZeRO, for
            each layer and each rank that its parts go by.
        update: bytes read and written for each parameter of which a rank has the
            optimizer's state.
        stall: what a micro-batch waits for each neighbour of a stage if a node's
            network is ill (without a pipeline, as for two), and a step for two where
            whole gradients are summed; fault: the chance of a node (not fitted).
        retry: what a micro-batch takes longer where more than FULL of the memory is
            used, and the allocator has to give back and ask again.
    """

    products: float = 0.608
    half_width: float = 50.6
    scores: float = 0.263
    traffic: float = 178.0
    logit_traffic: float = 61.2
    host: float = 0.00454
    hop: float = 0.00335
    pipeline: float = 0.00167
    pipeline_power: float = 1.15
    link: float = 0.751
    gradients: float = 0.36
    ring: float = 5.65e-05
    update: float = 309.0
    stall: float = 0.446
    retry: float = 1.08
    fault: float = 0.02


FITTED = Constants()
# A library that launches its kernels ahead of the GPU: nothing waits for calls. What is
# left is the GPU's and the links'; a collective takes some 2 us a rank, three a layer.
AHEAD = replace(FITTED, host=0.0, hop=0.0, pipeline=0.0, ring=6e-6, retry=0, fault=0)


@dataclass(frozen=True)
class Estimate:
    """What a layout is expected to need.

    Attributes:
        memory: GiB by kind, on the fullest GPU; `fits` says whether the GPU has them.
        time: seconds of a step by kind: "compute", "tensor", "context", "pipeline"
            (from stage to stage), "bubble", "data" (sums of gradients, gathered
            parameters) and "other".
        stages: seconds of each stage for a micro-batch, forward and backward.
        tokens: tokens a second and GPU.
        tflops: model TFLOP/s a GPU, by 6 N + 12 L h s; a tied table that two stages
            hold counts twice, as in the measured runs.
        expected: `tokens`, times the chance that a pipeline need not wait for an ill
            node; the search ranks by it.
    """

    layout: Layout
    memory: Mapping[str, float]
    time: dict[str, float]
    stages: tuple[float, ...]
    fits: bool
    tokens: float
    tflops: float
    expected: float

    @property
    def gib(self) -> float:
        """Memory in all."""
        return sum(self.memory.values())

    @property
    def seconds(self) -> float:
        """The time of a step."""
        return sum(self.time.values())


def estimate(
    model: Model,
    gpu: Gpu,
    layout: Layout,
    sequence: int,
    engine: Engine,
    constants: Constants | None = None,
) -> Estimate:
    """Memory and time of a step with this layout; `constants` are FITTED or AHEAD, as
    the engine is, if none are given."""
    c = constants or (FITTED if engine.measured else AHEAD)
    used = memory(model, layout, sequence, engine)
    if engine.gathered and sum(used.values()) > FULL * gpu.memory:
        used = memory(model, layout, sequence, replace(engine, gathered=0))
    healthy = (1 - c.fault) ** gpu.nodes(layout.gpus)
    case = _Case(model, gpu, layout, sequence, engine, c)
    ill = healthy < 0.4  # as most such runs were
    share = sum(used.values()) / gpu.memory
    waits = c.retry * layout.micro_batches * (share > FULL)
    time, stages = _step(case, waits + (_stalls(layout, c) if ill else 0.0))
    tokens = layout.sequences * sequence / sum(time.values()) / layout.gpus
    tflops = tokens * model.flops_per_token(sequence, min(layout.pp, 2)) / 1e12
    # Without a pipeline runs were hardly ever ill.
    luck = healthy if layout.pp > 1 and not ill else 1.0
    return Estimate(
        layout, used, time, stages, share <= 1, tokens, tflops, tokens * luck
    )


def _stalls(layout: Layout, c: Constants) -> float:
    """Seconds of a step that are lost to an ill network."""
    turns = layout.micro_batches + layout.pp - 1
    sums = 2 * c.stall * (layout.zero == 0 and layout.dp > 1)
    return turns * c.stall * (1 if layout.pp == 2 else 2) + sums


class _Case(NamedTuple):
    model: Model
    gpu: Gpu
    layout: Layout
    sequence: int
    engine: Engine
    constants: Constants

    @property
    def tokens(self) -> float:
        """Tokens that a rank has of a micro-batch."""
        return self.sequence * self.layout.micro_batch / self.layout.cp


def _step(case: _Case, waits: float) -> tuple[dict[str, float], tuple[float, ...]]:
    """Seconds of a step by kind, and of each stage for a micro-batch."""
    model, gpu, layout, _, engine, c = case
    layers, head = engine.split(model, layout)
    compute, context, tensor = _layer(case)
    top, handover = _head(case), _handover(case)
    stages = [
        count * (compute + context + tensor) + top * (stage == head) + handover
        for stage, count in enumerate(layers)
    ]
    slowest, m = max(stages), layout.micro_batches
    many = m * layers[stages.index(slowest)]
    shards = layout.dp * layout.cp if layout.zero else 1
    parameters = max(
        stage_parameters(model, layout, engine, i) for i in range(layout.pp)
    )
    update = c.update * parameters / shards / gpu.bandwidth
    return {
        "compute": m * (slowest - handover) - many * (tensor + context),
        "tensor": many * tensor,
        "context": many * context,
        "pipeline": m * handover,
        "bubble": (sum(stages) - slowest) / layout.virtual,
        "data": _data(case, parameters, m * slowest),
        "other": update + waits,
    }, tuple(stages)


def _layer(case: _Case) -> tuple[float, float, float]:
    """Seconds of a layer for a micro-batch, forward and backward: compute, what context
    parallel and what tensor parallel ranks wait for each other."""
    model, gpu, layout, sequence, engine, c = case
    t, h, tokens, passes = layout.tp, model.hidden, case.tokens, 3 + layout.recompute
    size = engine.size
    matrices, scores = model.layer_flops(sequence)
    reached = c.products / (1 + c.half_width * (t / h + 1 / tokens))
    busy = (
        (matrices / reached + scores / c.scores) * passes / (gpu.flops * gpu.sustained)
    )
    compute = (busy + c.traffic * h / gpu.bandwidth) * tokens / t * size / 2
    # Four gathers and four scatters, of the input and the output of each half.
    sent = 8 * gpu.collective(size * tokens * h, t, 1) / c.link
    # Keys and values go round once forward, and with their gradients backward. No
    # measured run had context parallel ranks: nothing is taken to be hidden.
    keys = 2.0 * size * tokens * layout.cp * model.kv / t
    ring = gpu.collective(keys, layout.cp, t)
    context = 3 * ring / c.link
    nodes, host = gpu.nodes(t), c.host * passes / 3
    if layout.pp > 1 and layout.gpus > gpu.node:
        host += c.pipeline * t**c.pipeline_power if t > 1 else 0.0
    elif nodes > 1:
        return max(compute, host), context, (nodes - 1) * c.hop + sent
    alone = max(compute, host)
    return alone, context, max(compute + sent, host) - alone


def _handover(case: _Case) -> float:
    """Seconds in which a stage gets a micro-batch and, later, its gradient, which
    tensor parallel ranks share out; so for each part of the stage."""
    model, gpu, layout, _, engine, c = case
    if layout.pp == 1:
        return 0.0
    link = c.link * (gpu.nvlink if layout.gpus <= gpu.node else gpu.network)
    sent = 2.0 * engine.size * case.tokens * model.hidden / layout.tp
    return layout.virtual * sent / link


def _head(case: _Case) -> float:
    """Seconds of the products with the vocabulary, and of the loss."""
    model, gpu, layout, _, engine, c = case
    scores = case.tokens * model.vocabulary / layout.tp
    peak = gpu.flops * gpu.sustained
    product = 6.0 * scores * model.hidden / (peak * c.products)
    return (product + c.logit_traffic * scores / gpu.bandwidth) * engine.size / 2


def _data(case: _Case, parameters: float, compute: float) -> float:
    """Gradients are summed (4 bytes each), and with ZeRO parameters gathered.

    What is sent during the last backward pass, or with ZeRO 2 and 3 during each, is
    hidden as far as there is time. Of ZeRO 3, the first and last layer are not.
    """
    model, gpu, layout, _, engine, c = case
    ranks, step, m = layout.dp * layout.cp, layout.tp, layout.micro_batches
    if ranks == 1:
        return 0.0
    rounds = 2 if layout.zero == 0 else 1
    sums = gpu.collective(4.0 * parameters, ranks, step, rounds) / c.gradients
    gather = gpu.collective(engine.size * parameters, ranks, step) / c.gradients
    turns = c.ring * model.layers / layout.pp * (ranks - 1)
    backward = compute * 2 / 3
    if layout.zero == 0:
        return max(0.0, sums - backward / m)
    if layout.zero == 1:
        return sums + gather + turns
    if layout.zero == 2:
        return gather + max(0.0, m * (sums + turns) - backward)
    both = sums + 2 * gather
    return both / model.layers + max(0.0, m * (both + turns) - compute)
