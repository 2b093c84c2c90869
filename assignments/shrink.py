"""Small inputs that fail.

With this file one can look for inputs for which something is wrong (`search`), the
same as a grader's for a seed, and then for the smallest inputs of the same kind
(`smallest`): what they were drawn from is made smaller, choice by choice, as long as
the smaller inputs fail as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from assignments.checks import Check, Inputs
from assignments.draw import Choice, Replay, SeededDraw

P = TypeVar("P")
SECONDS = 2.0  # that may be spent on making inputs smaller


@dataclass(frozen=True)
class Case:
    """Inputs, and what they were made from.

    Attributes:
        sizes: the check's sizes.
        choices: of the draw, without the sizes.
        inputs: that came of it.
    """

    sizes: Mapping[str, int]
    choices: Sequence[Choice]
    inputs: Inputs

    def cost(self, check: Check) -> float:
        """How much there is to read and to think about."""
        sizes = sum(_cost_of_size(check, *item) for item in self.sizes.items())
        return sizes + sum(_cost(choice) for choice in self.choices)


@dataclass(frozen=True)
class Found(Generic[P]):
    """Inputs that fail, and what is wrong with them.

    Attributes:
        inputs: the smallest that were found.
        problem: what `attempt` said about them.
        by_chance: whether the same inputs were right at another time.
    """

    inputs: Inputs
    problem: P
    by_chance: bool = False


def search(
    check: Check,
    seed: int,
    attempt: Callable[[Inputs], P | None],
    seconds: float = SECONDS,
) -> Found[P] | None:
    """The smallest inputs for which `attempt` returns a problem, and the problem.

    All inputs of the check for a seed are tried, small ones first.
    """
    cases = [_make(check, draw, sizes) for draw, sizes in check.draws(seed)]
    for case in sorted(cases, key=lambda case: case.cost(check)):
        problem = attempt(case.inputs)
        if problem is not None:
            return smallest(check, case, problem, attempt, seconds)
    return None


def smallest(
    check: Check,
    case: Case,
    problem: P,
    attempt: Callable[[Inputs], P | None],
    seconds: float = SECONDS,
) -> Found[P]:
    """Make a case that fails smaller until nothing smaller fails, or time is up."""
    again = attempt(case.inputs)
    if again is None:
        return Found(case.inputs, problem, by_chance=True)
    end, seen = time.monotonic() + seconds, set()
    best, problem, moving = case, again, True
    while moving:
        moving = False
        for sizes, choices in _smaller(check, best):
            if time.monotonic() > end:
                break
            trial = _make(check, Replay(choices), sizes)
            key = _key(trial)
            if key in seen or trial.cost(check) >= best.cost(check):
                continue
            seen.add(key)
            found = attempt(trial.inputs)
            if found is not None:
                best, problem, moving = trial, found, True
                break
    return Found(best.inputs, problem)


def _make(check: Check, draw: SeededDraw | Replay, sizes: Mapping[str, int]) -> Case:
    inputs = check.inputs(draw, **sizes)
    return Case(sizes, tuple(draw.made), inputs)


def _key(case: Case) -> tuple[Any, ...]:
    """Tells cases apart."""
    values = [c.value for c in case.choices]
    kept = [v.tobytes() if isinstance(v, np.ndarray) else v for v in values]
    return tuple(case.sizes.values()), *kept


# ------------------------------------------------------------------- what is smaller

Trial = tuple[Mapping[str, int], Sequence[Choice]]


def _smaller(check: Check, case: Case) -> Iterator[Trial]:
    """Cases that may be smaller; large steps first."""
    choices = case.choices
    for name, value in case.sizes.items():
        for less in _less(value, _least(check, name, value)):
            sizes = {**case.sizes, name: less}
            yield sizes, choices
            # With one dimension less, one of the sizes after it is drawn no more.
            for k in range(len(choices)):
                yield sizes, [*choices[:k], *choices[k + 1 :]]
    for i, choice in enumerate(choices):
        for value in _simpler(choice):
            changed = [*choices[:i], Choice(value, choice.simplest), *choices[i + 1 :]]
            yield case.sizes, changed
            if _is_whole(value):
                yield from ((case.sizes, also) for also in _with_another(changed, i))


def _with_another(choices: Sequence[Choice], i: int) -> Iterator[Sequence[Choice]]:
    """Choices without a later one, which is drawn no more, or with a larger one."""
    for k in range(i + 1, len(choices)):
        yield [*choices[:k], *choices[k + 1 :]]
    for k, other in enumerate(choices):
        if k != i and _is_whole(other.value):
            more = Choice(other.value + 1, other.simplest)
            yield [*choices[:k], more, *choices[k + 1 :]]


def _least(check: Check, name: str, value: int) -> int:
    """How small a size can be: the smallest that the check ever asks for."""
    low, _ = check.sizes.get(name, (value, value))
    return min([low, value, *(edge[name] for edge in check.edges if name in edge)])


def _cost_of_size(check: Check, name: str, value: int) -> float:
    return 2.0 * (value - _least(check, name, value))


def _less(value: int, simplest: int) -> Iterator[int]:
    """`simplest`, and then halfway and nearer to `value`."""
    step = value - simplest
    while step:
        yield value - step
        step = int(step / 2)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int)


def _simpler(choice: Choice) -> Iterator[Any]:
    value = choice.value
    if isinstance(value, np.ndarray):
        if value.size:
            yield np.arange(1, value.size + 1)
            yield np.ones(1)
            yield np.zeros(1)
            yield np.round(value.astype(np.float64))
            yield np.round(value.astype(np.float64) * 8) / 8
    elif _is_whole(value):
        yield from _less(value, int(choice.simplest))
    else:
        yield from (1.0, 0.0, float(round(value)), round(value * 8) / 8)


def _cost(choice: Choice) -> float:
    value = choice.value
    if isinstance(value, np.ndarray):
        size = value.size or 5.0  # a special case: only where it has to be
        return 1.0 + value.ndim + size + _roughness(value)
    if _is_whole(value):
        return 1.0 + abs(value - choice.simplest)
    return 1.0 + _roughness(np.array([value]))


def _roughness(value: np.ndarray) -> float:
    """Less than 1, and 0 for 1, 2, 3, ...: who sees a number knows where it was."""
    x = value.astype(np.float64).reshape(-1)
    simple = (np.arange(1, x.size + 1), np.ones(1), np.zeros(1), np.round(x))
    for number, numbers in enumerate((*simple, np.round(8 * x) / 8)):
        if np.array_equal(x, np.broadcast_to(numbers, x.shape)):
            return 0.1 * number
    return 0.9
