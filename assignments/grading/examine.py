"""Checks and properties of a task, on one device, in a worker.

With this file the grader can run one check (`examine`): it draws the inputs from its
secret seed, sends them, and judges what comes back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assignments.checks import AnyCheck, Check, Properties
from assignments.compare import Difference
from assignments.grading.channel import Failed, Worker

PASSED, WRONG, FAILED, NOT_RUN = "passed", "wrong", "failed", "not run"
INTEGER_LIMIT = 1 << 10
ASKS_LIMIT = 200_000  # operators that one run of a student's tests may call


@dataclass(frozen=True)
class Result:
    """How a check went.

    Attributes:
        task, name, device: what was checked.
        status: PASSED, WRONG (other values), FAILED (no values), NOT_RUN.
        share: of its points, 0 to 1.
        text: for the student: what is wrong, "" if nothing is.
        seconds: that it took.
        ratio: how many times as fast as the reference, where speed was measured.
        limit: the share of what this machine can do at most, where that is known.
    """

    task: str
    name: str
    device: str
    status: str
    share: float = 0.0
    text: str = ""
    seconds: float = 0.0
    ratio: float | None = None
    limit: float | None = None


class Clock:
    """The time that is left for a task.

    Args:
        seconds: for all its checks on a device.
        call: for one call.
    """

    def __init__(self, seconds: float, call: float) -> None:
        self.end = time.perf_counter() + seconds
        self.call = call

    def left(self) -> float:
        """Seconds for the next call."""
        return min(self.call, max(0.0, self.end - time.perf_counter()))


def examine(
    check: AnyCheck, device: str, worker: Worker, seed: int, clock: Clock
) -> Result:
    """Run a check or properties; `timing.examine` is for speed."""
    start = time.perf_counter()
    if isinstance(check, Check):
        result = _check(check, device, worker, seed, clock)
    else:
        assert isinstance(check, Properties)
        result = _properties(check, device, worker, seed, clock)
    return replace(result, seconds=time.perf_counter() - start)


# --------------------------------------------------------------------------- checks


def _check(
    check: Check, device: str, worker: Worker, seed: int, clock: Clock
) -> Result:
    result = Result(check.task, check.name, device, FAILED)
    # The edges come twice, with other contents: outputs cannot be remembered by size.
    for inputs in (*check.cases(seed), *check.cases(seed + 1, 0)):
        request = {
            "do": "call",
            "call": check.call.__name__,
            "device": device,
            "inputs": inputs,
        }
        try:
            answer = worker.request(request, clock.left(), answer_limit(inputs))
        except Failed as failure:
            return replace(result, text=describe(failure, inputs))
        found = judge(check, inputs, answer.value)
        if found is not None:
            return replace(result, status=WRONG, text=tell(found, inputs))
    return replace(result, status=PASSED, share=1.0)


def judge(check: Any, inputs: Mapping[str, Any], outputs: Any) -> Difference | None:
    """What is wrong with outputs that nobody has looked at yet."""
    try:
        with np.errstate(all="ignore"):
            found: Difference | None = check.judge(dict(inputs), outputs)
            return found
    except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        # They come from a stranger. Whatever is wrong with the oracle is our mistake.
        check.expected(**inputs)
        return Difference("", f"the outputs cannot be compared: {error}")


def answer_limit(inputs: Mapping[str, Any]) -> int:
    """Bytes that a call's outputs may have: it returns its operands, too."""
    return 4 * sum(_bytes(value) for value in inputs.values()) + (32 << 20)


def _bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return 0


def describe(failure: Failed, inputs: Mapping[str, Any]) -> str:
    """Why there are no outputs, for the student."""
    if failure.type == "NotImplementedError":
        return failure.text
    text = f"{failure.type}: {failure.text}" if failure.type else failure.text
    where = f"\n  at {failure.where}" if failure.where else ""
    return f"{text}{where}\n  inputs: {sizes(inputs)}"


def tell(found: Difference, inputs: Mapping[str, Any]) -> str:
    """What is wrong with outputs, for the student."""
    lines = [found.reason, f"  inputs: {sizes(inputs)}"]
    for label, text in (
        ("got", found.got),
        ("expected", found.expected),
        ("", found.where),
    ):
        if text:
            lines.append(f"  {label}: {text}" if label else f"  {text}")
    return "\n".join(lines)


def sizes(inputs: Mapping[str, Any]) -> str:
    """Names, dtypes and shapes of inputs, in a line."""
    return ", ".join(f"{name} {_size(value)}" for name, value in inputs.items())[:400]


def _size(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_size(item) for item in value[:4])}]"
    return repr(value)[:60]


# ----------------------------------------------------------------------- properties


def _properties(
    check: Properties, device: str, worker: Worker, seed: int, clock: Clock
) -> Result:
    """Run the student's tests on right and wrong operators, in a secret order."""
    result = Result(check.task, check.name, device, FAILED)
    # Two right ones: whoever fails all but one by chance does not pass.
    runs: list[tuple[str, Any]] = [("", check.reference()), ("", check.reference())]
    runs += [(broken.what, broken.make()) for broken in check.broken]
    random.Random(seed).shuffle(runs)
    for what, operators in runs:
        request = {
            "do": "properties",
            "module": check.module,
            "names": list(check.functions),
        }
        asked = _Asked(operators, check.functions)
        try:
            outcome = worker.request(request, clock.left(), 1 << 20, asked).value
        except Failed as failure:
            return replace(result, text=describe(failure, {}))
        problem = _judge_tests(outcome, what)
        if problem:
            return replace(result, status=WRONG, text=problem)
    return replace(result, status=PASSED, share=1.0)


def _judge_tests(outcome: Any, what: str) -> str:
    """Whether tests passed or failed as they should; "" if so."""
    if type(outcome) is not dict or not all(type(v) is str for v in outcome.values()):
        return "the tests did not say how they went"
    if not outcome:
        return "there is no test: write functions whose names begin with test_"
    failed = {name: text for name, text in outcome.items() if text}
    if not what and failed:
        name, text = next(iter(failed.items()))
        return f"{name} fails on the right operators: {text}"
    if what and not failed:
        return f"no test notices this mistake: {what}"
    return ""


class _Asked:
    """Computes operators for a worker, with numbers alone.

    Args:
        operators: object with the functions.
        names: of those that may be called.
    """

    def __init__(self, operators: Any, names: tuple[str, ...]) -> None:
        self.functions = {name: getattr(operators, name) for name in names}
        self.count = 0

    def __call__(self, name: str, inputs: list[Any]) -> dict[str, Any]:
        self.count += 1
        if name not in self.functions or self.count > ASKS_LIMIT:
            return {
                "raises": "RuntimeError",
                "text": f"{name} cannot be called (again)",
            }
        if not all(type(value) in (bool, int, float) for value in inputs):
            return {"raises": "TypeError", "text": f"{name} takes numbers"}
        try:
            value = self.functions[name](*map(_small, inputs))
            value = value if type(value) in (bool, float) else float(value)
        except (ArithmeticError, ValueError, TypeError) as error:
            return {"raises": type(error).__name__, "text": str(error)[:500]}
        return {"value": value}


def _small(value: float) -> float:
    """Large integers as floats: powers of them would take for ever to compute."""
    return float(value) if type(value) is int and abs(value) > INTEGER_LIMIT else value
