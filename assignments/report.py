"""Tell a student what the checks said.

With this file one can put results into a table (`print_table`), and each failure into a
few lines (`lines_of`).
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from assignments.catalog import Task, points
from assignments.grading.examine import (
    CRASHED,
    HUNG,
    NOT_RUN,
    PASSED,
    RAISED,
    UNWRITTEN,
    Result,
    part,
)
from assignments.simulated import simulates

INDENT = "    "
GONE = (CRASHED, HUNG)  # of the worker; the checks after that cannot run
# Control characters of old terminals (C0) and of newer ones (C1), what turns the order
# of letters around or is not seen, other line ends, surrogates and what has no meaning.
NOT_SHOWN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
LONGEST = 4_000  # characters of one text


def device_name(device: str) -> str:
    """ "cuda (simulator)" where that is what runs."""
    return f"{device} (simulator)" if simulates(device) else device


def number(points: float) -> str:
    """Points without needless digits, two after the point at most."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def clean(text: str) -> str:
    """Text of a stranger's without what terminals would obey and readers not see."""
    kept = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return "".join(
        c for c in kept if c in "\t\n" or unicodedata.category(c) not in NOT_SHOWN
    )


def lines_of(outcome: Result, task: Task, told: set[str] | None = None) -> list[str]:
    """A failure in a few lines.

    Args:
        told: hints, and words on checks, that are not said again; takes this one's.
    """
    on = "" if outcome.device == "python" else f" on {device_name(outcome.device)}"
    what = f": {outcome.name}" if outcome.name else ""
    lines = [f"{task.id}{on}{what}"]
    lines += textwrap.wrap(
        clean(outcome.reason), 88, initial_indent=INDENT, subsequent_indent=INDENT
    )
    told = set() if told is None else told
    said = [line for line in _worth_saying(outcome, task) if line[1] not in told]
    told |= {text for label, text in said if label in ("hint", "the check")}
    width = max((len(label) for label, _ in said), default=0)
    before = ""
    for label, text in said:
        shown = label if label != before else ""
        before = label
        margin = f"{INDENT}{shown:{width}}  "
        if label in ("hint", "the check"):
            wide = 88 - len(margin)
            text = "\n".join(_filled(line, wide) for line in text.split("\n"))
        first, *rest = text.splitlines() or [""]
        lines.append(margin + first)
        lines += [" " * len(margin) + line for line in rest]
    return lines


def _filled(line: str, wide: int) -> str:
    deep = len(line) - len(line.lstrip())
    return textwrap.fill(line, wide, subsequent_indent=" " * (deep and deep + 4))


# What a device says by itself when it compiles.
_BY_ITSELF = re.compile(r"^mojo_ops: compiling .*\n?", re.MULTILINE)


def _worth_saying(outcome: Result, task: Task) -> list[tuple[str, str]]:
    """The lines of an outcome, with the task's hint where no other is there.

    What does not compile has nothing to do with inputs, and no hint helps.
    """
    told = outcome.lines or ()
    said = [(label, _BY_ITSELF.sub("", clean(text))) for label, text in told]
    said = [(label, text) for label, text in said if text or label != "printed"]
    if outcome.status == UNWRITTEN or "SyntaxError" in outcome.reason:
        unasked = ("the check", "smallest input", "hint")
        return [line for line in said if line[0] not in unasked]
    if task.hint and outcome.name and not any(label == "hint" for label, _ in said):
        said.append(("hint", task.hint))
    return said


def print_table(rows: Sequence[tuple[Task, str, Sequence[Result]]]) -> None:
    """A line for each task and device: points, and what came of it.

    Why a device cannot be used is said once, below.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("task")
    table.add_column("device", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("result", min_width=15)
    reasons: dict[str, None] = {}
    for task, device, outcomes in rows:
        if outcomes and all(o.status == NOT_RUN for o in outcomes):
            reasons[f"not run: {outcomes[0].reason}"] = None
        got, most = _points(task, device, rows)
        word, style = _verdict(outcomes)
        table.add_row(
            f"{task.id} {task.title}",
            "" if device == "python" else device_name(device),
            f"{number(got)} / {number(most)}" + (" bonus" if task.bonus else ""),
            Text(word, style=style),
        )
    console = Console(highlight=False)
    console.print(table)
    for reason in reasons:
        console.print(Text(reason, style="yellow"))


def _points(
    task: Task, device: str, rows: Sequence[tuple[Task, str, Sequence[Result]]]
) -> tuple[float, float]:
    """The points that a device adds to a task's, and those that it could add."""
    parts = {d: part(task, found) for t, d, found in rows if t == task}
    others = {d: None for d, share in parts.items() if share is None}
    if device in others:
        return 0.0, 0.0
    one = points(task, {**others, device: 1.0})
    return one * (parts[device] or 0.0), one


def _verdict(outcomes: Sequence[Result]) -> tuple[str, str]:
    ran = [o for o in outcomes if o.status != NOT_RUN]
    if not ran:
        return "not run", "yellow"
    bad = [o for o in ran if o.status != PASSED]
    if not bad:
        said = [o.reason for o in ran if o.reason]
        said += [f"not run: {o.name}" for o in outcomes if o.status == NOT_RUN]
        return f"passed: {'; '.join(said)}" if said else "passed", "green"
    if all(o.status == UNWRITTEN for o in bad) and len(bad) == len(ran):
        return "not written yet", "dim"
    if not bad[0].name or all(o.status in GONE for o in bad):
        return bad[0].status, "bold red"
    return f"{len(bad)} of {len(ran)} checks fail", "red"


def failures(
    rows: Sequence[tuple[Task, str, Sequence[Result]]],
) -> Iterator[list[str]]:
    """The lines of all failures; of one that is the same on another device, two."""
    told: set[str] = set()
    where: dict[tuple[str, ...], str] = {}
    for task, device, outcomes in rows:
        for outcome in first_failures(outcomes):
            key = task.id, outcome.name, outcome.text
            first = where.setdefault(key, device)
            lines = lines_of(outcome, task, told)
            same = [lines[0], f"{INDENT}the same as on {device_name(first)}"]
            yield lines if first == device else same


def first_failures(outcomes: Sequence[Result]) -> list[Result]:
    """What to show in detail: all that failed, and of unwritten functions the first.

    Where nothing is written the table has said so. Checks that end with one error at
    one line are shown together.
    """
    if all(outcome.status == UNWRITTEN for outcome in outcomes):
        return []
    alike: dict[Any, list[Result]] = {}
    for number, outcome in enumerate(outcomes):
        if outcome.status not in (PASSED, NOT_RUN):
            key = _error(outcome) or number
            alike.setdefault(key, []).append(outcome)
    return [_together(*found) for found in alike.values()]


def _error(outcome: Result) -> tuple[str, ...]:
    """What an outcome has in common with those that end in the same way; () if none."""
    if outcome.status == UNWRITTEN:
        return (outcome.reason,)
    if outcome.status in GONE:
        return GONE
    places = [t.split("\n")[-1] for label, t in outcome.lines if label == RAISED]
    return (outcome.reason, *places) if places else ()


def _together(outcome: Result, *others: Result) -> Result:
    """The first of some outcomes that are alike, with the names of the others."""
    names = [other.name for other in others]
    if not names or outcome.status in (UNWRITTEN, *GONE):
        return outcome
    also = ("also in", textwrap.fill(", ".join(names), 66))
    return replace(outcome, lines=(*outcome.lines, also))
