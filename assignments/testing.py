"""Look for the smallest inputs for which what a student wrote is wrong.

With this file the student's side draws inputs (`Search`): it goes through those that a
grader tries for a seed, and makes the first that fail smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from assignments.checks import Check
from assignments.compare import show
from assignments.grading.examine import Inputs, Line, Problem, about, said
from assignments.shrink import search

SEED = 0  # of a student's own runs; graders have their own

BY_CHANCE = (
    "the same input was right at another time: threads that write one place, or memory "
    "that nobody wrote"
)

Attempt = Callable[[dict[str, Any]], Problem | None]


class _Final(Exception):
    """Ends a search: of a worker that is gone nothing can be asked, and processes take
    longer than threads, which have looked already."""


class Search(Inputs):
    """The inputs of a student's own run: small ones first."""

    def __init__(self) -> None:
        super().__init__(SEED)

    def first_problem(self, check: Check, attempt: Attempt) -> Problem | None:
        """The problem with the smallest inputs that have one."""

        def attempted(inputs: dict[str, Any]) -> Problem | None:
            problem = attempt(inputs)
            if problem is not None and (problem.final or check.torch):
                raise _Final(about(problem, [*said(check), *self.shown(inputs)]))
            return problem

        try:
            found = search(check, self.seed, attempted)
            if found is None:  # the edges once more, as for a grader
                return super().first_problem(check, attempt)
        except _Final as end:
            problem: Problem = end.args[0]
            return problem
        problem = about(found.problem, [*said(check), *self.shown(found.inputs)])
        if found.by_chance:
            lines = (*problem.lines, ("note", BY_CHANCE))
            problem = replace(problem, lines=lines)
        return problem

    def cases(self, check: Check) -> list[dict[str, Any]]:
        return list(check.cases(self.seed + 1, 0))

    def shown(self, inputs: Mapping[str, Any]) -> list[Line]:
        return [
            ("smallest input", f"{n} = {show(v)}".replace("\n", f"\n{' ' * len(n)}   "))
            for n, v in inputs.items()
        ]

    def ordered(self, runs: list[Any]) -> list[Any]:
        return runs
