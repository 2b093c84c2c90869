"""Run a check on what a student wrote, and explain what is wrong.

With this file the student's side runs a check in the present process (`run_check`):
it goes
through the check's inputs, and looks for the smallest that fail.
"""

from __future__ import annotations

import linecache
import time
import traceback
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assignments.checks import AnyCheck, Check, Properties, Speed, why_not
from assignments.compare import Difference, show
from assignments.shrink import search

SEED = 0  # of a student's own runs; graders have their own

BY_CHANCE = (
    "the same input was right at another time: threads that write one place, or memory "
    "that nobody wrote"
)

PASSED, FAILED, UNWRITTEN, CRASHED, HUNG, NOT_RUN = (
    "passed",
    "failed",
    "not written",
    "crashed",
    "timed out",
    "not run",
)


@dataclass
class Outcome:
    """What became of one check on one device.

    Attributes:
        status: one of the words above.
        share: which part of the check's points is earned, 0 to 1.
        reason: what is wrong, in one line.
        lines: (label, text) pairs that explain it.
        seconds: how long it took.
    """

    task: str
    check: str
    device: str
    status: str
    share: float = 0.0
    reason: str = ""
    lines: list[tuple[str, str]] | None = None
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run_check(check: AnyCheck, device: str, files: Collection[str] = ()) -> Outcome:
    """Run one check here; it never raises for what a student's code does.

    Args:
        files: a student's files, to point at lines in them.
    """
    outcome = Outcome(check.task, check.name, device, PASSED, 1.0)
    why = why_not(check, device)
    if why:
        outcome.status, outcome.share, outcome.reason = NOT_RUN, 0.0, why
        return outcome
    begin = time.perf_counter()
    try:
        if isinstance(check, Properties):
            problem = _run_properties(check, files)
        elif isinstance(check, Speed):
            problem = _run_speed(check, device, files, outcome)
        else:
            problem = _search(check, device, files)
    except NotImplementedError as error:
        outcome.status, outcome.share, outcome.reason = UNWRITTEN, 0.0, str(error)
        problem = None
    if problem is not None:
        outcome.status, outcome.share = FAILED, 0.0
        outcome.reason, outcome.lines = problem.reason, problem.lines
        if check.hint:
            outcome.lines.append(("hint", check.hint))
    outcome.seconds = time.perf_counter() - begin
    return outcome


@dataclass
class Problem:
    """Why a check failed."""

    reason: str
    lines: list[tuple[str, str]]


def _search(check: Check, device: str, files: Collection[str]) -> Problem | None:
    """The problem with the smallest inputs that fail, or None."""

    def attempt(inputs: dict[str, Any]) -> Problem | None:
        try:
            outputs = check.call(device, **inputs)
        except NotImplementedError:
            raise
        except Exception as error:
            return raised(error, files)
        found = check.judge(inputs, outputs)
        return None if found is None else explain(found, check.oracle)

    found = search(check, SEED, attempt)
    if found is None:
        return None
    lines = [("smallest input", f"{n} = {show(v)}") for n, v in found.inputs.items()]
    lines += found.problem.lines
    if found.by_chance:
        lines.append(("note", BY_CHANCE))
    return Problem(found.problem.reason, lines)


def explain(found: Difference, oracle: str) -> Problem:
    """A difference in lines to print."""
    lines = [
        ("came out", found.got),
        (f"{oracle} says", found.expected),
        ("first wrong", found.where),
    ]
    return Problem(found.reason, [line for line in lines if line[1]])


def raised(error: Exception, files: Collection[str]) -> Problem:
    """An exception of a student's code: what, and in which of their lines."""
    message = (str(error).strip().splitlines() or [""])[0]
    lines = []
    known = {str(Path(file).resolve()) for file in files}
    if isinstance(error, SyntaxError) and error.filename:
        number = f":{error.lineno}" if error.lineno else ""
        place = f"{Path(error.filename).name}{number}"
        lines.append(("raised at", f"{place}: {(error.text or '').strip()}"))
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if str(Path(frame.filename).resolve()) in known:
            code = linecache.getline(frame.filename, frame.lineno or 0).strip()
            place = f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}"
            lines.append(("raised at", f"{place}: {code}"))
            break
    return Problem(f"raised {type(error).__name__}: {message}", lines)


# ------------------------------------------------------------------------ properties


def _run_properties(check: Properties, files: Collection[str]) -> Problem | None:
    from assignments.calling import run_properties

    try:
        outcome = run_properties(check.module, check.reference())
        if not outcome:
            return Problem("there are no tests: write functions test_...(ops)", [])
        for name, failure in outcome.items():
            if failure:
                said = [(name, failure)]
                return Problem(f"{name} fails on a right implementation", said)
        for broken in check.broken:
            if not any(run_properties(check.module, broken.make(), True).values()):
                said = [("not noticed", broken.what)]
                return Problem("no test notices an implementation that is wrong", said)
    except NotImplementedError:
        raise
    except Exception as error:
        return raised(error, files)
    return None


# ----------------------------------------------------------------------------- speed

ROUNDS = 7


def _run_speed(
    check: Speed, device: str, files: Collection[str], outcome: Outcome
) -> Problem | None:
    """Time the student's call and the rival, in turns, in this process.

    The rival runs on the same library as the student's code here; a grader times it in
    a process of its own.
    """
    ratios = []
    for number in range(ROUNDS + 1):
        inputs = check.make_inputs(SEED, number)
        try:
            seconds, outputs = _timed(check.call, device, inputs)
        except NotImplementedError:
            raise
        except Exception as error:
            return raised(error, files)
        found = check.judge(inputs, outputs)
        if found is not None:
            return explain(found, check.oracle)
        theirs, _ = _timed(check.rival, device, inputs)
        if number:  # the first round compiles
            ratios.append(theirs / seconds)
    ratio = sorted(ratios)[len(ratios) // 2]
    outcome.share = check.points_share(ratio)
    if outcome.share == 0:
        return Problem(f"too slow: {check.said(ratio)}", [])
    outcome.reason = check.said(ratio)
    return None


def _timed(call: Any, device: str, inputs: dict[str, Any]) -> tuple[float, Any]:
    go, read = call(device, **inputs)
    begin = time.perf_counter()
    result = go()
    return time.perf_counter() - begin, read(result)
