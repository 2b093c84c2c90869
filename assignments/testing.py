"""Look for the smallest inputs for which what a student wrote is wrong.

With this file the student's side draws inputs (`Search`): Hypothesis looks for small
ones; then the sizes at which mistakes hide (empty, one element, around a block, large)
are tried, those that a grader tries as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from assignments.checks import Check
from assignments.compare import show
from assignments.draw import HypothesisDraw
from assignments.grading.examine import Inputs, Line, Problem, about

SEED = 0  # of a student's own runs; graders have their own
SHRINK_SECONDS = 10.0

BY_CHANCE = (
    "the same input was right at another time: threads that write one place, or memory "
    "that nobody wrote"
)

Attempt = Callable[[dict[str, Any]], Problem | None]
Found = tuple[dict[str, Any], Problem]


class _Enough(KeyboardInterrupt):
    """Stops a search of Hypothesis, which lets only this kind through."""


class _Wrong(Exception):
    """Tells Hypothesis that inputs fail."""


def _size(inputs: dict[str, Any]) -> int:
    """How much there is to read in some inputs."""
    arrays = [v.size for v in inputs.values() if hasattr(v, "size")]
    return sum(arrays) if arrays else len(repr(inputs))


class Search(Inputs):
    """The inputs of a student's own run: small ones first."""

    def __init__(self) -> None:
        super().__init__(SEED)

    def cases(self, check: Check) -> list[dict[str, Any]]:
        return sorted(super().cases(check), key=_size)

    def first_problem(self, check: Check, attempt: Attempt) -> Problem | None:
        """The problem with the smallest inputs that have one."""
        found = _by_hypothesis(check, attempt)
        if found is None:
            return super().first_problem(check, attempt)
        return about(found[1], self.shown(found[0]))

    def shown(self, inputs: Mapping[str, Any]) -> list[Line]:
        return [("smallest input", f"{n} = {show(v)}") for n, v in inputs.items()]

    def ordered(self, runs: list[Any]) -> list[Any]:
        return runs


def _by_hypothesis(check: Check, attempt: Attempt) -> Found | None:
    from hypothesis import HealthCheck, Phase, Verbosity, given, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky

    found: Found | None = None
    until = 0.0

    @settings(
        max_examples=check.examples,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
    )
    @given(st.data())
    def search(data: Any) -> None:
        nonlocal found, until
        if found is not None and time.monotonic() > until:
            raise _Enough
        inputs = check.draw(HypothesisDraw(data.draw))
        problem = attempt(inputs)
        if problem is None:
            return
        until = until or time.monotonic() + SHRINK_SECONDS
        found = inputs, problem
        raise _Enough if problem.final else _Wrong

    try:
        search()
    except (_Wrong, _Enough):
        pass
    except Flaky:
        if found is None:
            raise
        lines = (*found[1].lines, ("note", BY_CHANCE))
        return found[0], replace(found[1], lines=lines)
    return found
