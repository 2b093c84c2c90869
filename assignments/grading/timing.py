"""Speed, as a ratio to the reference, by the grader's clock.

With this file the grader times a student's function and the reference's in turns
(`examine`). Both run in workers of the same kind, in the same minutes, and while one is
timed, all processes of the other stand still. Every timed call gets inputs that did not
exist before, and every output of a timed call is checked.

A call has four steps: *load* sends the inputs and gets their digest back, so that all
of them are there; *prepare* lays them out; *go* does what is timed; *read* fetches the
outputs. What the worker claims to have done in each is not believed: what all its
processes use of the processors outside of *go* is measured as well, and where that is
more than the reference uses, the difference counts as part of that call's *go*. Work
that is done before or after the timed step therefore gains nothing.

Rounds end as soon as no noise could change what the ratio earns: a few are enough where
it is far from all steps (`settled`). How far the times of the reference are apart says
how noisy the machine is. Where that leaves open what a ratio earns, there are more
rounds, and in the end no judgement. Nor is there one where the library's own solution
loses points, too (`beside`).

A time below what this machine can do (its measured memory bandwidth or arithmetic) is
refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from assignments.checks import Speed
from assignments.grading.channel import Failed, Worker
from assignments.grading.examine import (
    FAILED,
    NOT_RUN,
    PASSED,
    WRONG,
    Clock,
    Problem,
    Result,
    about,
    answer_limit,
    describe,
    judge,
    sizes,
    tell,
)
from assignments.grading.wire import digest

# Not timed; the least there are; those after which only noise asks for more; the most.
WARM_UP, FEW, ROUNDS, MOST = 1, 3, 15, 45
REFERENCE_SECONDS = (
    600.0  # for a call: the first one compiles, on a machine that is busy
)
# Of all rounds the fastest third counts: other programs can only make a call slower.
BEST = 3
QUIET = 1.05  # two halves of one's own times may differ by this factor anywhere
NOISY = "not judged: "
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
class Fresh:
    """Inputs that did not exist before, for one call of each.

    Attributes:
        values: by name.
        digest: which only those know who have all of them.
    """

    values: dict[str, Any]
    digest: str


@dataclass(frozen=True)
class Timed:
    """One timed call.

    Attributes:
        go: seconds of the timed step.
        around: seconds that load, prepare and read used of processors; on a GPU, took.
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
    right: Callable[[], None] = lambda: None,
) -> Result:
    """Time both, check what they return, and give points for the ratio.

    Args:
        right: called once the student's function has returned what is right.
    """
    start = time.perf_counter()
    result = Result(check.task, check.name, device, FAILED)
    ours: list[Timed] = []
    theirs: list[Timed] = []
    for number in range(WARM_UP + MOST):
        values = check.make_inputs(seed, number)
        inputs = Fresh(values, digest(values))
        reached = _round(check, device, student, rival, inputs, clock)
        if isinstance(reached, Problem):
            shown = [("inputs", sizes(values))]
            return about(reached, shown).result(check, device)
        if number == 0:
            right()
        if number >= WARM_UP:
            ours.append(reached[0])
            theirs.append(reached[1])
        once = (time.perf_counter() - start) / (number + 1)
        late = clock.end - time.perf_counter() < 2 * once
        if len(ours) >= FEW and (late or settled(check, ours, theirs)):
            break
    took, ratio = seconds(ours, theirs), ratio_of(ours, theirs)
    result = replace(result, seconds=time.perf_counter() - start)
    least = _least(check, machine, seed)
    if min(timed.go for timed in ours) < least:
        text = f"faster than this machine can be: below {least * 1e3:.3f} ms"
        return replace(result, status=WRONG, text=text)
    if "theirs" in points_left_open(check, ours, theirs):
        text = f"{NOISY}the machine is too busy to tell how fast this is; try again"
        return replace(result, status=NOT_RUN, text=text)
    share = check.points_share(ratio)
    return replace(
        result,
        status=PASSED if share else WRONG,
        share=share,
        text=f"{check.said(ratio)} ({took * 1e3:.2f} ms)",
        ratio=ratio,
        limit=LIMIT_MARGIN * least / took or None,
    )


def beside(result: Result, library: Result) -> Result:
    """A speed beside that of the library's own solution, in the same minutes.

    On a busy machine two threads are no faster than one, steadily. Then the library
    loses points, too, and they are no fault of the student's.
    """
    if library.share == 1:
        return result
    text = f"{NOISY}the library's own solution is slow here, too: {library.text}"
    return replace(result, status=NOT_RUN, share=0.0, text=text, ratio=None)


def _round(
    check: Speed,
    device: str,
    student: Worker,
    rival: Worker,
    inputs: Fresh,
    clock: Clock,
) -> tuple[Timed, Timed] | Problem:
    """One call of each; or why the student's call is none."""
    try:
        timed = _run(student, check.call.__name__, device, inputs, clock)
    except Failed as failure:
        return describe(failure)
    found = judge(check, inputs.values, timed.outputs)
    if found is not None:
        return tell(found, check.oracle)
    reference = _reference(rival, check, device, inputs)
    return replace(timed, outputs=None), replace(reference, outputs=None)


def seconds(ours: Sequence[Timed], theirs: Sequence[Timed]) -> float:
    """The time of the student's call, with what was done outside of the timed step.

    The reference does there what everybody has to do. What is more than its median by
    more than its own times differ is work, of the very call it was done for.
    """
    around = [timed.around for timed in theirs]
    allowed = 2 * median(around) - best(around)
    return best([each.go + max(0.0, each.around - allowed) for each in ours])


def ratio_of(ours: Sequence[Timed], theirs: Sequence[Timed]) -> float:
    """How many times as fast as the reference the student's call is."""
    return best([timed.go for timed in theirs]) / seconds(ours, theirs)


def settled(check: Speed, ours: Sequence[Timed], theirs: Sequence[Timed]) -> bool:
    """Whether more rounds would tell nothing new.

    The fewer there were, and the more they differ, the farther from all steps the ratio
    has to be; twice as far where points are lost.
    """
    count = len(ours)
    gos = [[timed.go for timed in times] for times in (ours, theirs)]
    margin = (1 + 1 / count) * max(median(go) / best(go) for go in gos)
    lost = check.points_share(ratio_of(ours, theirs)) < 1
    if not points_left_open(check, ours, theirs, (1 + lost) * margin):
        return True
    return count % ROUNDS == 0 and not points_left_open(check, ours, theirs)


def best(times: Sequence[float]) -> float:
    """The median of the shortest times."""
    return median(sorted(times)[: max(1, len(times) // BEST)])


def points_left_open(
    check: Speed, ours: Sequence[Timed], theirs: Sequence[Timed], margin: float = 1.0
) -> list[str]:
    """Whose times differ so much that a ratio could as well earn something else.

    Only those of the reference tell how noisy the machine is: a student's own are as
    irregular as the student wants.

    Args:
        margin: by so much more than they differ, the ratio may be wrong, too.
    """
    found, ratio = [], ratio_of(ours, theirs)
    for name, times in (("ours", ours), ("theirs", theirs)):
        halves = [best([timed.go for timed in times[at::2]]) for at in (0, 1)]
        spread = margin * max(halves) / max(min(halves), 1e-9)
        ends = {check.points_share(ratio * spread), check.points_share(ratio / spread)}
        if spread > QUIET and len(ends) > 1:
            found.append(name)
    return found


def uncounted(results: list[Result], partial: bool) -> list[Result]:
    """The results of a task on a device, of which nothing counts if a speed is open.

    Unless it has lost its points anyway: then the speed does not matter.
    """
    if not any(result.text.startswith(NOISY) for result in results):
        return results
    lost = any(r.share == 0 and r.status != NOT_RUN for r in results)
    if lost and not partial:
        return results
    text = "right, and not counted: the task's speed could not be judged"
    return [
        replace(r, status=NOT_RUN, text=text) if r.status == PASSED else r
        for r in results
    ]


def _least(check: Speed, machine: Machine | None, seed: int) -> float:
    if machine is None:
        return 0.0
    moved, operations = check.work(**check.make_inputs(seed, 0))
    return machine.least_seconds(moved, operations)


def _reference(rival: Worker, check: Speed, device: str, inputs: Fresh) -> Timed:
    """A call of the reference's, which has all the time it wants."""
    try:
        clock = Clock(REFERENCE_SECONDS, REFERENCE_SECONDS)
        return _run(rival, check.rival.__name__, device, inputs, clock)
    except Failed as failure:
        raise RuntimeError(
            f"grade: the reference of {check.task}, {check.name}, fails: {failure}"
        ) from None


def _run(worker: Worker, call: str, device: str, inputs: Fresh, clock: Clock) -> Timed:
    """One call in its four steps; the worker stands still before and after it."""
    asked = {"call": call, "device": device}
    used, start = worker.thaw(), time.perf_counter()
    load = {"do": "load", "inputs": inputs.values}
    if worker.request(load, clock.left()).value != inputs.digest:
        raise Failed("protocol", "the inputs did not arrive")
    worker.request({"do": "prepare", **asked}, clock.left())
    prepared = worker.tree.cpu()
    go = worker.request({"do": "go"}, clock.left()).seconds
    done = worker.tree.cpu()
    limit = answer_limit(inputs.values)
    outputs = worker.request({"do": "read"}, clock.left(), limit).value
    took = time.perf_counter() - start
    around = prepared - used + worker.freeze() - done
    if device == "cuda":  # whose own work uses no processor
        around = took - go
    return Timed(go, around, outputs)
