"""Speed, as a ratio to the reference, by the grader's clock.

With this file the grader times a student's function and the reference's in turns
(`examine`). Both run in workers of the same kind, in the same minutes. Every timed call
gets inputs that did not exist before, and every output of a timed call is checked.

A call has three steps: *prepare* sends the inputs, *go* does what is timed, *read*
fetches the outputs. What the worker claims to have done in each is not believed: the
time from the first byte of the inputs to the last one of the outputs is measured as
well, and where a student's worker takes longer for prepare and read than the reference
does, the difference counts as part of *go*. Work that is done before or after the timed
step therefore gains nothing.

A time below what this machine can do (its measured memory bandwidth or arithmetic) is
refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from assignments.checks import Speed
from assignments.grading.channel import Failed, Worker
from assignments.grading.examine import (
    FAILED,
    PASSED,
    WRONG,
    Clock,
    Result,
    answer_limit,
    describe,
    judge,
    tell,
)

WARM_UP, ROUNDS = 2, 15
REFERENCE_SECONDS = (
    600.0  # for a call: the first one compiles, on a machine that is busy
)
# Of all rounds the fastest ones count: other programs can only make a call slower.
BEST = 5
# How much longer than in the reference's worker prepare and read may take: noise.
SLACK, SLACK_SECONDS = 1.5, 2e-4
# A limit is measured with noise, and small inputs stay in caches that are faster.
LIMIT_MARGIN = 1.5
CACHE_BYTES = 16 << 20


@dataclass(frozen=True)
class Machine:
    """What this machine can do at most: bytes and operations a second."""

    bandwidth: float
    flops: float

    def least_seconds(self, moved: float, operations: float) -> float:
        """The time that a task needs at least."""
        # What fits into caches is not bound by memory.
        through_memory = moved / self.bandwidth if moved > CACHE_BYTES else 0.0
        return max(through_memory, operations / self.flops) / LIMIT_MARGIN


@dataclass(frozen=True)
class Timed:
    """One timed call.

    Attributes:
        go: seconds of the timed step.
        around: seconds of prepare and read.
        outputs: what came back.
    """

    go: float
    around: float
    outputs: Any


def examine(
    check: Speed,
    device: str,
    student: Worker,
    rival: Worker,
    machine: Machine | None,
    seed: int,
    clock: Clock,
) -> Result:
    """Time both, check what they return, and give points for the ratio."""
    start = time.perf_counter()
    result = Result(check.task, check.name, device, FAILED)
    ours: list[Timed] = []
    theirs: list[Timed] = []
    for number in range(WARM_UP + ROUNDS):
        inputs = check.make_inputs(seed, number)
        try:
            timed = _run(student, check.call.__name__, device, inputs, clock)
        except Failed as failure:
            return replace(result, text=describe(failure, inputs))
        found = judge(check, inputs, timed.outputs)
        if found is not None:
            return replace(result, status=WRONG, text=tell(found, inputs))
        reference = _reference(rival, check, device, inputs)
        if number >= WARM_UP:
            ours.append(timed)
            theirs.append(reference)
    took, least = seconds(ours, theirs), _least(check, machine, seed)
    spent = time.perf_counter() - start
    if min(timed.go for timed in ours) < least:
        text = f"faster than this machine can be: below {least * 1e3:.3f} ms"
        return replace(result, status=WRONG, text=text, seconds=spent)
    ratio = best([timed.go for timed in theirs]) / took
    share = check.points_share(ratio)
    return Result(
        *(check.task, check.name, device, PASSED if share else WRONG, share),
        text=f"{check.said(ratio)} ({took * 1e3:.2f} ms)",
        seconds=spent,
        ratio=ratio,
        limit=LIMIT_MARGIN * least / took or None,
    )


def seconds(ours: list[Timed], theirs: list[Timed]) -> float:
    """The time of the student's call, with what was done outside of the timed step."""
    allowed = SLACK * best([t.around for t in theirs]) + SLACK_SECONDS
    outside = max(0.0, best([t.around for t in ours]) - allowed)
    return best([t.go for t in ours]) + outside


def best(times: list[float]) -> float:
    """The median of the shortest times."""
    return median(sorted(times)[:BEST])


def _least(check: Speed, machine: Machine | None, seed: int) -> float:
    if machine is None:
        return 0.0
    moved, operations = check.work(**check.make_inputs(seed, 0))
    return machine.least_seconds(moved, operations)


def _reference(
    rival: Worker, check: Speed, device: str, inputs: Mapping[str, Any]
) -> Timed:
    """A call of the reference's, which has all the time it wants."""
    try:
        clock = Clock(REFERENCE_SECONDS, REFERENCE_SECONDS)
        return _run(rival, check.rival.__name__, device, inputs, clock)
    except Failed as failure:
        raise RuntimeError(
            f"grade: the reference of {check.task}, {check.name}, fails: {failure}"
        ) from None


def _run(
    worker: Worker, call: str, device: str, inputs: Mapping[str, Any], clock: Clock
) -> Timed:
    """One call in its three steps."""
    asked = {"call": call, "device": device, "inputs": dict(inputs)}
    start = time.perf_counter()
    worker.request({"do": "prepare", **asked}, clock.left())
    go = worker.request({"do": "go"}, clock.left()).seconds
    outputs = worker.request({"do": "read"}, clock.left(), answer_limit(inputs)).value
    return Timed(go, time.perf_counter() - start - go, outputs)
