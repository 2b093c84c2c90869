"""Schedules of a pipeline: for each rank, what it does one after the other.

With this file one can make a schedule (`one_f_one_b(4, 8)`), or write one by hand,
since it is a list of `Action`s for each rank; check that it can be done at all
(`check`); see it (`print(table(schedule))`, `draw(schedule, path)`); and know what it
costs: the share of time in which ranks wait (`bubble`), and the activations that they
hold (`peak`).

A network has stages; with `chunks` > 1 each rank has several, and stage s is chunk
s // ranks of rank s % ranks. All micro-batches go forward through all stages and then
back. A schedule only says in which order a rank does its part.

Source: Huang et al., "GPipe", 2019; one forward, one backward: Narayanan et al.,
"PipeDream", 2019; interleaved: Narayanan et al., "Efficient large-scale language model
training on GPU clusters using Megatron-LM", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from minitorch.scenes import Part


class Action(NamedTuple):
    """The forward ("F") or backward ("B") pass of a micro-batch through a chunk."""

    kind: str
    chunk: int
    microbatch: int


Schedule = list[list[Action]]
Seconds = float | Sequence[float]
Key = tuple[str, int, int]  # kind, stage, micro-batch


# --------------------------------------------------------------------- to make one


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forward passes, then all backward passes. Each rank holds all micro-batches;
    the bubble is (stages - 1) / microbatches."""
    return _schedule(stages, microbatches, 1, [microbatches] * stages)


def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """Backward passes as soon as they can be done, so that rank r holds no more than
    stages - r micro-batches. The bubble is that of `gpipe`."""
    # BEGIN SOLUTION a13.5
    ahead = [stages - rank - 1 for rank in range(stages)]
    return _schedule(stages, microbatches, 1, ahead)
    # END SOLUTION a13.5


def interleaved(stages: int, microbatches: int, chunks: int) -> Schedule:
    """`one_f_one_b` where each rank has `chunks` stages, each so much shorter. The
    bubble is (stages - 1) / (chunks * microbatches), for as many times the messages.

    Args:
        stages: how many ranks there are.
        microbatches: a multiple of it.
    """
    if chunks > 1 and microbatches % stages:
        raise ValueError(
            f"interleaved: {microbatches} micro-batches and {stages} ranks; they go in "
            f"groups of {stages}, so expected a multiple of it"
        )
    if chunks == 1:
        return one_f_one_b(stages, microbatches)
    ahead = [2 * (stages - r - 1) + (chunks - 1) * stages for r in range(stages)]
    return _schedule(stages, microbatches, chunks, ahead)


def _schedule(
    stages: int, microbatches: int, chunks: int, ahead: Sequence[int]
) -> Schedule:
    """`ahead[rank]` forward passes, then one forward and one backward in turns."""
    sizes = ("stages", stages), ("microbatches", microbatches), ("chunks", chunks)
    for name, size in sizes:
        if size < 1:
            raise ValueError(f"schedule: {name} is {size}; expected 1 or more")
    # BEGIN SOLUTION a13.5
    order = [
        (chunk, microbatch)
        for first in range(0, microbatches, stages)
        for chunk in range(chunks)
        for microbatch in range(first, min(first + stages, microbatches))
    ]
    forward = [Action("F", *at) for at in order]
    backward = [Action("B", chunks - 1 - c, microbatch) for c, microbatch in order]
    # END SOLUTION a13.5
    return [list(_in_turns(forward, backward, n)) for n in ahead]


def _in_turns(
    forward: Sequence[Action], backward: Sequence[Action], ahead: int
) -> Iterator[Action]:
    # BEGIN SOLUTION a13.5
    yield from forward[:ahead]
    for k, action in enumerate(forward[ahead:]):
        yield action
        yield backward[k]
    yield from backward[max(len(forward) - ahead, 0) :]
    # END SOLUTION a13.5


# ------------------------------------------------------------------- to look at one


class Span(NamedTuple):
    """An action, and from when to when it is done."""

    action: Action
    start: float
    end: float


def chunks_of(schedule: Schedule) -> int:
    """How many stages each rank has."""
    return 1 + max(action.chunk for row in schedule for action in row)


def check(schedule: Schedule) -> None:
    """Whether a schedule can be done: all actions once on each rank, and none waits for
    one that comes later.

    Errors: ValueError, which names a rank and an action.
    """
    chunks = chunks_of(schedule)
    count = 1 + max(action.microbatch for row in schedule for action in row)
    needed = {
        Action(kind, chunk, microbatch)
        for kind in "FB"
        for chunk in range(chunks)
        for microbatch in range(count)
    }
    for rank, row in enumerate(schedule):
        for action in row:
            if action not in needed or row.count(action) > 1:
                raise ValueError(
                    f"check: rank {rank} must do {_label(schedule, action)} once"
                )
        for action in sorted(needed.difference(row)):
            raise ValueError(
                f"check: rank {rank} never does {_label(schedule, action)}"
            )
    timeline(schedule)


def timeline(
    schedule: Schedule,
    forward: Seconds = 1,
    backward: Seconds = 2,
    transfer: float = 0,
) -> list[list[Span]]:
    """When each rank does what, event by event: an action begins when its rank is free
    and what it needs has come.

    Args:
        forward, backward: how long a pass through a stage takes, on all ranks or on
            each.
        transfer: how long a message takes from one rank to another.

    Errors: ValueError if ranks wait for each other for ever.
    """
    ranks, done = len(schedule), dict[Key, float]()
    took = {"F": _on_each(forward, ranks), "B": _on_each(backward, ranks)}
    last, spans = ranks * chunks_of(schedule) - 1, [list[Span]() for _ in schedule]
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule):
            while len(spans[rank]) < len(row):
                action = row[len(spans[rank])]
                stage = action.chunk * ranks + rank
                needs = _needs(action, stage, last)
                if any(key not in done for key in needs):
                    break
                free = spans[rank][-1].end if spans[rank] else 0
                ready = [done[key] + transfer * (key[1] != stage) for key in needs]
                start = max([free, *ready])
                end = start + took[action.kind][rank]
                spans[rank].append(Span(action, start, end))
                done[action.kind, stage, action.microbatch] = end
                moved = True
    stuck = [
        f"rank {rank} before {_label(schedule, row[len(spans[rank])])}"
        for rank, row in enumerate(schedule)
        if len(spans[rank]) < len(row)
    ]
    if stuck:
        raise ValueError(
            f"timeline: {', '.join(stuck)}: what these need comes later, or never"
        )
    return spans


def _needs(action: Action, stage: int, last: int) -> list[Key]:
    """What must be done before: by the stage before, or by that behind and by us."""
    # BEGIN SOLUTION a13.5
    kind, _, microbatch = action
    if kind == "F":
        return [("F", stage - 1, microbatch)] if stage else []
    behind = [("B", stage + 1, microbatch)] if stage < last else []
    return [("F", stage, microbatch), *behind]
    # END SOLUTION a13.5


def _on_each(seconds: Seconds, ranks: int) -> Sequence[float]:
    return [seconds] * ranks if isinstance(seconds, (int, float)) else seconds


def bubble(schedule: Schedule, forward: Seconds = 1, backward: Seconds = 2) -> float:
    """The time in which ranks wait, by that in which they work."""
    return waiting(timeline(schedule, forward, backward))


def waiting(spans: Sequence[Sequence[Span]]) -> float:
    """`bubble` of a timeline."""
    busy = sum(span.end - span.start for row in spans for span in row)
    return max(row[-1].end for row in spans) * len(spans) / busy - 1


def peak(schedule: Schedule) -> list[int]:
    """The most micro-batches that each rank holds at once, in chunks: those that went
    forward through one and not back."""
    # BEGIN SOLUTION a13.5
    most = []
    for row in schedule:
        held, counts = 0, [0]
        for action in row:
            held += 1 if action.kind == "F" else -1
            counts.append(held)
        most.append(max(counts))
    return most
    # END SOLUTION a13.5


def table(schedule: Schedule) -> str:
    """A line for each rank, in time; a backward pass takes twice that of a forward."""
    spans = timeline(schedule)
    labels = [[_label(schedule, span.action) for span in row] for row in spans]
    width = 1 + max(len(label) for row in labels for label in row)
    lines = []
    for rank, row in enumerate(spans):
        line, now = f"rank {rank}  ", 0
        for label, span in zip(labels[rank], row):
            line += ".".ljust(width) * int(span.start - now)
            line += label.ljust(width * int(span.end - span.start))
            now = int(span.end)
        lines.append(line.rstrip())
    return "\n".join(lines)


def _label(schedule: Schedule, action: Action) -> str:
    """ "F3", or for the second of several chunks "F3b"."""
    chunk = chr(ord("a") + action.chunk) if chunks_of(schedule) > 1 else ""
    return f"{action.kind}{action.microbatch}{chunk}"


def scene(schedule: Schedule, caption: str = "") -> Part:
    """The timeline as a part of a picture (`minitorch/scenes.py`)."""
    from minitorch.scenes import part

    lanes = [
        [f"rank {rank}: {held} held", [
            [start, end, _label(schedule, action)[1:], 1 if action.kind == "F" else 2]
            for action, start, end in spans
        ]]
        for rank, (spans, held) in enumerate(zip(timeline(schedule), peak(schedule)))
    ]  # fmt: skip
    unit = 21 if chunks_of(schedule) == 1 else 28
    return part("timeline", caption, lanes=lanes, unit=unit, height=20)


NOTE = "blue: forward; orange: backward; numbers: micro-batches"


def draw(schedule: Schedule, path: Path, title: str = "") -> None:
    """A picture of the timeline, as an SVG file; chunks of a stage have letters.

    Errors: ValueError for a path that does not end in .svg.
    """
    from minitorch.scenes import write

    text = title or f"When each of {len(schedule)} ranks works on which micro-batch"
    write([[{**scene(schedule, title), "notes": [NOTE]}]], path, text)


# -------------------------------------------------------------------------- to do one


class Message(NamedTuple):
    """What a stage made of a micro-batch, on its way to the stage that needs it."""

    kind: str
    stage: int  # that needs it
    microbatch: int
    source: int  # the ranks
    target: int


def program(schedule: Schedule, rank: int) -> list[Action | Message]:
    """What a rank does, sends and receives, in the order of the timeline.

    All ranks see messages in one order, that of a clock they share. So the first thing
    in this order that is not done can be done: nobody waits in a circle, even where
    messages between two ranks pass one channel, in both directions (as with NCCL).
    """
    ranks, events = len(schedule), list[tuple[Any, Action | Message]]()
    last = ranks * chunks_of(schedule) - 1
    for source, row in enumerate(timeline(schedule)):
        for action, start, end in row:
            kind, chunk, microbatch = action
            stage = chunk * ranks + source
            if source == rank:
                events.append(((start, 1, stage), action))
            to = stage + (1 if kind == "F" else -1)
            ends = source, to % ranks
            if 0 <= to <= last and rank in ends and ends[0] != ends[1]:
                message = Message(kind, to, microbatch, *ends)
                events.append(((end, 0, stage), message))
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]
