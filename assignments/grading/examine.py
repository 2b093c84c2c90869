"""Checks and properties of a task, on one device, in a worker.

With this file one can run one check (`examine`) for a grader and for a student: inputs
are drawn here (`Inputs`; what a student sees is found by `testing.Search`), sent to a
worker, and what comes back is judged. What went wrong is a `Problem`, what became of a
check a `Result`.
"""

from __future__ import annotations

import inspect
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Any

import numpy as np

from assignments.catalog import Task, earned
from assignments.checks import AnyCheck, Check, Properties
from assignments.compare import Difference
from assignments.grading.channel import Failed, Worker
from assignments.grading.wire import WireError

PASSED, WRONG, FAILED, UNWRITTEN, CRASHED, HUNG, NOT_RUN, REFUSED = (
    "passed",
    "wrong",
    "failed",
    "not written",
    "crashed",
    "timed out",
    "not run",
    "not allowed",
)
SHORT, WHOLE = 160, 4_000  # characters of a stranger's that student and teacher see
INTEGER_LIMIT = 1 << 10
ASKS_LIMIT = 200_000  # operators that one run of a student's tests may call
# What to look at where a process was ended by one of these.
OUT_OF_BOUNDS = (
    "Compiled code does not check bounds: it has read or written outside of an array. "
    "Look at where its loops end, and at each index."
)
SIGNALS = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")

AT_A_STEP = re.compile(
    r"Failed in \w+ mode pipeline \(step: |- Resolution failure for literal arguments:"
)
# What Numba says deep within, where an inlined function asks for memory.
NO_MEMORY = "NRT required but not enabled"
NO_NEW_ARRAYS = (
    "a function that kernels call makes a new array, and has no memory for one: write "
    "a loop over its elements"
)

Line = tuple[str, str]  # a label, and what it says
RAISED = "raised at"  # what it says is the worker's word
NOT_YOURS = "no line of yours: by what yours returned, or left undone"


@dataclass(frozen=True)
class Result:
    """What became of a check.

    Attributes:
        task, name, device: what was checked.
        status: PASSED, WRONG (other values), FAILED (an error instead of values),
            UNWRITTEN, CRASHED or HUNG (the worker is gone), NOT_RUN.
        share: of its points, 0 to 1.
        text: for the student: what is wrong, "" if nothing is.
        seconds: that it took.
        lines: for a student's own run: what follows the first line of the text.
        teacher: what students are not told, since a submission can put there what it
            finds: the whole of an error, and where it came from.
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
    teacher: str = ""
    ratio: float | None = None
    limit: float | None = None
    lines: tuple[Line, ...] = ()

    @property
    def reason(self) -> str:
        """What is wrong, in one line."""
        return self.text.partition("\n")[0]


@dataclass(frozen=True)
class Problem:
    """Why a check failed.

    Attributes:
        status: as in `Result`.
        reason: in one line.
        lines: that explain it.
        teacher: as in `Result`.
    """

    status: str
    reason: str
    lines: tuple[Line, ...] = ()
    teacher: str = ""

    @property
    def final(self) -> bool:
        """Whether no other inputs say more."""
        return self.status in (UNWRITTEN, CRASHED, HUNG)

    def result(self, check: AnyCheck, device: str) -> Result:
        """What became of the check that has this problem."""
        told = [f"{name}: {said}" for name, said in self.lines if name != RAISED]
        text = "\n".join([self.reason, *[indent(line, "  ") for line in told]])
        what = check.task, check.name, device, self.status
        return Result(*what, text=text, teacher=self.teacher, lines=self.lines)


def unwritten(task: str, device: str) -> Result:
    """What running would say about a task of which nothing is written."""
    said = f"task {task} is not implemented yet"
    return Result(task, "", device, UNWRITTEN, text=said)


def part(task: Task, results: Sequence[Result]) -> float | None:
    """Which part of its points a task earned on the device that the results are from.

    None if nothing could run there.
    """
    if any(result.status == REFUSED for result in results):
        return 0.0
    shares = [result.share for result in results if result.status != NOT_RUN]
    return earned(1.0, shares, task.partial) if shares else None


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


class Inputs:
    """The inputs with which a grader runs a check, from a seed.

    Args:
        seed: nobody can know the inputs who does not know it.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def cases(self, check: Check) -> list[dict[str, Any]]:
        """The edges come twice, with other contents: outputs cannot be remembered."""
        return [*check.cases(self.seed), *check.cases(self.seed + 1, 0)]

    def first_problem(
        self, check: Check, attempt: Callable[[dict[str, Any]], Problem | None]
    ) -> Problem | None:
        """Try inputs until some give a problem."""
        for inputs in self.cases(check):
            problem = attempt(inputs)
            if problem is not None:
                return about(problem, [*said(check), *self.shown(inputs)])
        return None

    def shown(self, inputs: Mapping[str, Any]) -> list[Line]:
        """What is said about inputs that give a problem."""
        return [("inputs", sizes(inputs))]

    def ordered(self, runs: list[Any]) -> list[Any]:
        """The order in which a student's tests get right and wrong operators."""
        random.Random(self.seed).shuffle(runs)
        return runs


def said(check: Check) -> list[Line]:
    """What a check calls, and what the names of its inputs mean: its call's docstring,
    without the ends of lines within a sentence."""
    text = re.sub(r"(?<=\S)\n(?=\S| {8}) *", " ", inspect.getdoc(check.call) or "")
    return [("the check", text.replace("\n\n", "\n"))]


def about(problem: Problem, shown: list[Line]) -> Problem:
    """The problem, with the inputs that give it; of what is unwritten all do."""
    if problem.status == UNWRITTEN:
        return problem
    return replace(problem, lines=(*shown, *problem.lines))


def examine(
    check: AnyCheck, device: str, worker: Worker, inputs: Inputs, clock: Clock
) -> Result:
    """Run a check or properties; `timing.examine` is for speed."""
    start = time.perf_counter()
    if isinstance(check, Check):
        problem = _check(check, device, worker, inputs, clock)
    else:
        assert isinstance(check, Properties)
        problem = _properties(check, worker, inputs, clock)
    result = Result(check.task, check.name, device, PASSED, 1.0)
    if problem is not None:
        result = problem.result(check, device)
    return replace(result, seconds=time.perf_counter() - start)


# --------------------------------------------------------------------------- checks


def _check(
    check: Check, device: str, worker: Worker, inputs: Inputs, clock: Clock
) -> Problem | None:
    def attempt(given: dict[str, Any]) -> Problem | None:
        request = {
            "do": "call",
            "call": check.call.__name__,
            "device": device,
            "inputs": given,
        }
        try:
            answer = worker.request(request, clock.left(), answer_limit(given))
        except Failed as failure:
            return describe(failure)
        found = judge(check, given, answer.value)
        if found is None:
            return None
        output = found.name.partition("[")[0]
        return tell(found, check.oracles.get(output, check.oracle))

    return inputs.first_problem(check, attempt)


def judge(check: Any, inputs: Mapping[str, Any], outputs: Any) -> Difference | None:
    """What is wrong with outputs that nobody has looked at yet."""
    try:
        with np.errstate(all="ignore"):
            found: Difference | None = check.judge(dict(inputs), outputs)
            return found
    except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        # They come from a stranger. Whatever is wrong with the oracle is our mistake.
        check.expected(**inputs)
        return Difference("", f"the outputs cannot be compared: {short(str(error))}")


def answer_limit(inputs: Mapping[str, Any]) -> int:
    """Bytes that a call's outputs may have: it returns its operands, too."""
    return 4 * sum(_bytes(value) for value in inputs.values()) + (32 << 20)


def _bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return 0


def short(text: str) -> str:
    """The first line of what a stranger says, and not much of it.

    Numba's compilers say first at which step they were, and then what is wrong.
    """
    if NO_MEMORY in text:
        return NO_NEW_ARRAYS
    lines = [line.strip() for line in text.split("\n") if line.strip()] or [""]
    said = [line for line in lines if not AT_A_STEP.match(line)] or lines
    line = " ".join(said[:2]) if said[0].endswith("signature:") else said[0]
    return line if len(line) <= SHORT else f"{line[:SHORT]} ..."


def describe(failure: Failed) -> Problem:
    """Why there are no outputs: for the student the type and the first line.

    The rest could carry what the worker can read back to whoever handed it in.
    """
    first = short(failure.text)
    said = ": ".join(filter(None, [failure.type, failure.text]))
    whole = f"{said}\n{failure.where}".strip()[:WHOLE]
    returned = failure.type in ("AttributeError", "TypeError")
    place = failure.where or (NOT_YOURS if returned else "")
    where = ((RAISED, place),) if place else ()
    if failure.type == "NotImplementedError":
        return Problem(UNWRITTEN, first, where)
    if failure.type == "Deadlock":  # of `ranks.py`
        return Problem(HUNG, first, where, whole)
    if failure.type:
        kind = short(failure.type)[:40]
        reason = f"raised {kind}: {first}" if first else f"raised {kind}"
        return Problem(FAILED, reason, where, whole)
    if failure.kind == "time":
        return Problem(HUNG, f"{first}: an endless loop?", teacher=whole)
    hint = (("hint", OUT_OF_BOUNDS),) if first.endswith(SIGNALS) else ()
    return Problem(CRASHED, f"crashed: {first}", hint, whole)


def tell(found: Difference, oracle: str) -> Problem:
    """What is wrong with outputs."""
    lines = (
        ("came out", found.got),
        (f"{oracle} says", found.expected),
        ("first wrong", found.where),
    )
    return Problem(WRONG, found.reason, tuple(line for line in lines if line[1]))


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
    check: Properties, worker: Worker, inputs: Inputs, clock: Clock
) -> Problem | None:
    """Run the student's tests on right and wrong operators."""
    # Two right ones: whoever fails all but one by chance does not pass.
    runs: list[tuple[str, Any]] = [("", check.reference()), ("", check.reference())]
    runs += [(broken.what, broken.make()) for broken in check.broken]
    for what, operators in inputs.ordered(runs):
        request = {
            "do": "properties",
            "module": check.module,
            "names": list(check.functions),
        }
        asked = _Asked(operators, check.functions)
        try:
            outcome = worker.request(request, clock.left(), 1 << 20, asked).value
        except Failed as failure:
            return describe(failure)
        problem = _judge_tests(outcome, what)
        if problem:
            return Problem(WRONG, problem[0], problem[1:])
    return None


def _judge_tests(outcome: Any, what: str) -> tuple[Any, ...]:
    """Whether tests passed or failed as they should; a reason and a line if not."""
    if type(outcome) is not dict or not all(type(v) is str for v in outcome.values()):
        return ("the tests did not say how they went",)
    if not outcome:
        return ("there are no tests: write functions whose names begin with test_",)
    failed = {name: text for name, text in outcome.items() if text}
    if not what and failed:
        name, text = next(iter(failed.items()))
        return f"{short(name)} fails on a right implementation", (
            short(name),
            short(text),
        )
    if what and not failed:
        return (
            "no test notices an implementation that is wrong",
            ("not noticed", what),
        )
    return ()


class _Asked:
    """Computes operators for a worker, with numbers alone.

    Args:
        operators: object with the functions.
        names: of those that may be called.
    """

    def __init__(self, operators: Any, names: tuple[str, ...]) -> None:
        self.functions = {name: getattr(operators, name) for name in names}
        self.count = 0

    def __call__(self, questions: list[Any]) -> list[dict[str, Any]]:
        return [self._answer(*_question(question)) for question in questions]

    def _answer(self, name: str, inputs: list[Any]) -> dict[str, Any]:
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


def _question(question: Any) -> tuple[str, list[Any]]:
    """The name and the inputs of a question that nobody has looked at yet."""
    match question:
        case [str(name), [*inputs]]:
            return name, inputs
    raise WireError("a question that is not a name and its inputs")


def _small(value: float) -> float:
    """Large integers as floats: powers of them would take for ever to compute."""
    return float(value) if type(value) is int and abs(value) > INTEGER_LIMIT else value
