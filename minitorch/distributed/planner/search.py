"""Which layout to take: first one that fits, then the batch, then throughput.

With this file one can list the layouts of a number of GPUs (`layouts`), rank those that
fit (`search`), and read why the best one is the best (`reasons`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from minitorch.distributed.pipelining.schedules import Span, interleaved, waiting
from minitorch.distributed.pipelining.schedules import timeline as spans_of
from minitorch.distributed.planner.cost import Constants, Estimate, estimate
from minitorch.distributed.planner.hardware import Gpu
from minitorch.distributed.planner.layout import Layout
from minitorch.distributed.planner.memory import GIB, Engine
from minitorch.distributed.planner.models import Model

LEAST_PART = 1024  # tokens of a sequence that a context parallel rank has at least


@dataclass(frozen=True)
class Task:
    """What is to be trained on what: `batch` sequences of `sequence` tokens a step."""

    model: Model
    gpu: Gpu
    gpus: int
    batch: int
    sequence: int
    engine: Engine
    constants: Constants | None = None

    def estimate(self, layout: Layout) -> Estimate:
        """Memory and time of a layout."""
        return estimate(
            self.model, self.gpu, layout, self.sequence, self.engine, self.constants
        )


def _divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def layouts(task: Task) -> Iterator[Layout]:
    """All layouts of the task's GPUs and batch.

    Heads are dealt to tensor parallel ranks evenly, which stay within a node. With a
    pipeline gradients have to stay whole until the last micro-batch, and ZeRO ends with
    stage 1; its stages can have several parts, of as many layers each, if micro-batches
    make whole groups. Layers are computed again only by layouts that do not fit
    otherwise (see `search`).
    """
    model, longest = task.model, task.sequence // LEAST_PART
    for tp in _divisors(model.kv_heads, task.gpu.node):
        for pp in _divisors(task.gpus, model.layers):
            for cp in _divisors(task.gpus, max(1, longest)):
                dp, rest = divmod(task.gpus, tp * pp * cp)
                if rest or dp < 1 or task.batch % dp:
                    continue
                for zero in range(4 if pp == 1 else 2) if dp * cp > 1 else (0,):
                    for micro in _divisors(task.batch // dp, 64):
                        count = task.batch // dp // micro
                        each, left = divmod(model.layers, pp)
                        whole = pp > 1 and not left and count % pp == 0
                        for virtual in _divisors(each, each) if whole else (1,):
                            yield Layout(
                                dp, tp, pp, cp, zero, micro, count, virtual=virtual
                            )


def search(task: Task) -> list[Estimate]:
    """What fits, the fastest first.

    Errors: ValueError if nothing fits, or no layout has so many GPUs and sequences.
    """
    tried = list(_tried(task))
    if not tried:
        near = max(1, round(task.batch / task.gpus)) * task.gpus
        raise ValueError(
            f"plan: {task.batch} sequences of {task.sequence} tokens cannot be dealt "
            f"to {task.gpus} GPUs; take --batch-tokens {near * task.sequence}, which "
            f"is {near} sequences, or other --gpus"
        )
    found = [one for one in tried if one.fits]
    if not found:
        raise ValueError(_too_large(task, min(tried, key=lambda one: one.gib)))
    return sorted(found, key=_rank)


def _tried(task: Task) -> Iterator[Estimate]:
    """All layouts, with layers computed again where they do not fit otherwise."""
    for layout in layouts(task):
        one = task.estimate(layout)
        yield one if one.fits else task.estimate(replace(layout, recompute=True))


def _too_large(task: Task, least: Estimate) -> str:
    """By how much it does not fit, of what there is most, and how many GPUs would do:
    so many times as many, each with as many sequences as now."""
    kind = max(least.memory, key=lambda kind: least.memory[kind])
    more = (
        replace(task, gpus=task.gpus * times, batch=task.batch * times)
        for times in (2**n for n in range(1, 8))
    )
    enough = next((t.gpus for t in more if any(o.fits for o in _smallest(t))), None)
    return (
        f"plan: {task.model.name} does not fit on {task.gpus} GPUs of "
        f"{task.gpu.memory:g} GiB: the least of all layouts ({least.layout}) takes "
        f"{least.gib:.1f} GiB, {least.gib - task.gpu.memory:.1f} too much, most of it "
        f"{kind} ({least.memory[kind]:.1f}); "
        + (f"it would fit on {enough} GPUs" if enough else "take larger GPUs")
    )


def _smallest(task: Task) -> Iterator[Estimate]:
    """All cuts, with what takes least memory."""
    for layout in layouts(task):
        if layout.micro_batch == layout.virtual == 1:
            yield task.estimate(replace(layout, recompute=True))


def _rank(one: Estimate) -> tuple[float, ...]:
    """Of layouts that are as fast, to about 2 %, the simpler stands first."""
    cut, speed = one.layout, -round(50 * math.log(one.expected))
    return speed, cut.cp, cut.tp * cut.pp, cut.virtual, cut.zero, -one.expected


def distinct(found: Sequence[Estimate]) -> list[Estimate]:
    """The best of each cut, with its best ZeRO stage and micro-batch."""
    cuts: dict[tuple[int, ...], Estimate] = {}
    for one in found:
        cut = one.layout
        cuts.setdefault((cut.dp, cut.tp, cut.pp, cut.cp), one)
    return list(cuts.values())


def timeline(one: Estimate) -> list[list[Span]]:
    """The pipeline of a step, event by event: 1F1B with the stages' own times."""
    layout, back = one.layout, 3 / 4 if one.layout.recompute else 2 / 3
    parts = [stage / layout.virtual for stage in one.stages]
    schedule = interleaved(layout.pp, layout.micro_batches, layout.virtual)
    forward = [(1 - back) * part for part in parts]
    return spans_of(schedule, forward, [back * part for part in parts])


def waits(one: Estimate) -> float:
    """The share of the time of a pipeline in which stages wait, as simulated."""
    return 1 - 1 / (1 + waiting(timeline(one)))


def reasons(task: Task, found: Sequence[Estimate]) -> list[str]:
    """What a practitioner would say, in the order of the decisions."""
    return [_fit(task, found), _batch(task, found[0]), *_throughput(found)]


def _fit(task: Task, found: Sequence[Estimate]) -> str:
    engine, model = task.engine, task.model
    each = sum(engine.states(0, 1))
    whole = model.parameters() * each / GIB
    text = (
        f"Fit: {model.parameters() / 1e9:.2f} billion parameters take {each:g} bytes "
        f"each, {whole:.1f} GiB in all, and the GPU ({task.gpu.name}) has "
        f"{task.gpu.memory:g}."
    )
    alone = [one for one in found if one.layout.tp * one.layout.pp == 1]
    if alone:
        zero = min(one.layout.zero for one in alone)
        how = f"with ZeRO {zero}" if zero else "without sharding"
        plain = any(not one.layout.recompute for one in alone)
        again = "" if plain else ", with layers computed again"
        return f"{text} Data parallel ranks alone hold it {how}{again}."
    least = min(one.layout.tp * one.layout.pp for one in found)
    why = "do not hold it, whatever ZeRO shards"
    if task.estimate(Layout(task.gpus, zero=3, recompute=True)).fits:
        why = f"would hold it, but {task.batch:,} sequences cannot be dealt to them"
    return (
        f"{text} Data parallel ranks alone {why}: at least {least} GPUs have to share "
        f"the layers."
    )


def _batch(task: Task, best: Estimate) -> str:
    layout = best.layout
    text = (
        f"Batch: {task.batch:,} sequences of {task.sequence:,} tokens are "
        f"{task.batch / layout.dp:g} for each of {layout.dp} data parallel ranks, "
        f"{layout.micro_batches} times a micro-batch of {layout.micro_batch}"
    )
    if layout.pp == 1:
        return f"{text}; there is no pipeline to be filled."
    parts = f" with {layout.virtual} parts each" if layout.virtual > 1 else ""
    return (
        f"{text}; the bubble of {layout.pp} stages{parts} is "
        f"{best.time['bubble'] / best.seconds:.1%} of the step. Simulated event by "
        f"event, with the head on the last, they wait for {waits(best):.1%} of it."
    )


def _throughput(found: Sequence[Estimate]) -> Iterator[str]:
    best = found[0]
    seconds, most = max((s, kind) for kind, s in best.time.items() if kind != "compute")
    yield (
        f"Throughput: {best.tokens:,.0f} tokens/s a GPU; most of what is not compute "
        f"is {most}, {seconds / best.seconds:.1%} of the step."
    )
    for name in ("tp", "pp", "virtual", "cp", "zero"):
        mine = getattr(best.layout, name)
        others = [one for one in found if getattr(one.layout, name) != mine]
        if others:
            other = others[0]
            yield (
                f"  {name} = {getattr(other.layout, name)} instead of {mine}: at best "
                f"{other.expected / best.expected - 1:+.1%} ({other.layout})."
            )
