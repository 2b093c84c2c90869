"""What a teacher, a student and other programs read about a grade.

With this file one can print a report as a table (`show`), and write it as
`results.json` for Gradescope (`gradescope`), as JUnit XML (`junit`) and as rows of a
table of many submissions (`row`, `columns`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from assignments.answers import Answer
from assignments.grading import sandbox
from assignments.grading.examine import NOT_RUN, PASSED, WRONG, Result
from assignments.grading.grade import ABSENT, Graded, Report
from assignments.report import clean, number

if TYPE_CHECKING:
    from rich.console import Console


def notice(report: Report) -> str:
    """What the mode of the sandbox does not promise; "" for the strong ones."""
    open_part = sandbox.WHAT_IS_OPEN.get(report.mode, "")
    return f"sandbox: {report.mode} only; {open_part}" if open_part else ""


def label(name: str) -> str:
    """The name of a submission in one line, for people."""
    return " ".join(clean(name).split()) or ascii(name)


# ---------------------------------------------------------------------------- table


def show(report: Report, console: Console) -> None:
    """Print task, backend, points and time, and what is wrong."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("task")
    table.add_column("backend")
    table.add_column("checks", justify="right")
    table.add_column("points", justify="right")
    table.add_column("seconds", justify="right")
    for graded in report.tasks:
        for cells in _rows(graded):
            table.add_row(*map(Text, cells))
    console.print(table)
    for graded in report.tasks:
        for result in graded.results:
            if result.text:
                title = f"{result.task}, {_title(result)}: {result.status}"
                console.print(Text(title, style="bold"))
                for text in (result.text, result.teacher):
                    console.print(Text(clean(text)))
    for line in (
        report.problem,
        report.failure,
        *map(answer_line, report.answers),
        notice(report),
        unjudged(report),
        *report.notes,
    ):
        if line:
            console.print(Text(clean(line)))
    total = f"{number(report.points)} of {number(report.possible)} points"
    console.print(Text(f"{label(report.name)}: {total}{not_run(report)}"))


def answer_line(answer: Answer) -> str:
    """Whether a question was answered, and what a teacher gave for it."""
    state = f"{len(answer.text.split())} words" if answer.text else "no answer"
    if answer.points is None:
        given = f"not marked, {number(answer.possible)} possible ({answer.rubric})"
    else:
        given = f"{number(answer.points)} of {number(answer.possible)} points"
    comment = f"; {answer.comment}" if answer.comment else ""
    return f"answer {answer.number}: {state}; {given}{comment}"


def not_run(report: Report) -> str:
    """The tasks of which nothing could run here, which do not count; "" if none."""
    missed = [
        f"{g.task.id} ({number(g.task.points)})"
        for g in report.tasks
        if not g.possible and not g.task.bonus
    ]
    return f"; not run here, and not counted: {', '.join(missed)}" if missed else ""


def unjudged(report: Report) -> str:
    """The tasks whose speed could not be judged; "" if none."""
    tasks = " ".join(report.unjudged)
    why = "not judged, since the machine was too busy to measure speed"
    return f"{why}: {tasks}; grade again" if tasks else ""


def _rows(graded: Graded) -> list[list[str]]:
    """A row for each device; the points stand in the first one."""
    devices = list(dict.fromkeys(result.device for result in graded.results))
    rows = []
    for at, device in enumerate(devices):
        results = [result for result in graded.results if result.device == device]
        passed = sum(result.status == PASSED for result in results)
        ran = any(result.status != NOT_RUN for result in results)
        title = f"{graded.task.id} {graded.task.title}" if at == 0 else ""
        points = f"{number(graded.points)} / {number(graded.possible)}"
        rows.append(
            [
                title,
                device,
                f"{passed} of {len(results)}" if ran else NOT_RUN,
                points if at == 0 else "",
                f"{sum(result.seconds for result in results):.1f}",
            ]
        )
    return rows


# --------------------------------------------------------------------------- files


def gradescope(report: Report) -> str:
    """`results.json`, as Gradescope's autograder reads it.

    The fields are those of its specification, "Output format"; `extra_data` has what
    other programs may want.
    """
    missed = not_run(report).removeprefix("; ")
    said = (report.problem, notice(report), missed, unjudged(report), *report.notes)
    lines = [clean(line) for line in said if line]
    tests = [_test(graded) for graded in report.tasks]
    tests += [_answer(answer) for answer in report.answers]
    values = {
        "score": round(report.points, 2),
        "execution_time": round(report.seconds),
        "output": "\n".join(lines) or "Graded.",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {
            "assignment": report.assignment.id,
            "digest": report.digest,
            "sandbox": report.mode,
            "failure": clean(report.failure),
            "printed": clean(report.output),
            "checks": [
                _check(result) for graded in report.tasks for result in graded.results
            ],
        },
    }
    return json.dumps(values, indent=1) + "\n"


def _test(graded: Graded) -> dict[str, Any]:
    lines = [
        f"{_title(r)}: {r.status}\n{clean(r.text)}".strip() for r in graded.results
    ]
    shown = {
        "number": graded.task.id,
        "name": f"{graded.task.title}{_beside_title(graded)}",
        "output": "\n".join(lines),
        "output_format": "text",
        "visibility": "visible",
    }
    if not graded.possible:  # neither passed nor failed
        return shown
    return {
        **shown,
        "score": round(graded.points, 2),
        "max_score": 0 if graded.task.bonus else graded.possible,
        "status": "passed" if graded.possible <= graded.points else "failed",
    }


def _answer(answer: Answer) -> dict[str, Any]:
    shown = {
        "number": f"answer {answer.number}",
        "name": f"Question {answer.number}",
        "output": clean(f"{answer_line(answer)}\n\n{answer.text}".strip()),
        "output_format": "text",
        "visibility": "visible",
    }
    if answer.points is None:  # neither passed nor failed
        return shown
    return {
        **shown,
        "score": round(answer.points, 2),
        "max_score": answer.possible,
    }


def _beside_title(graded: Graded) -> str:
    if not graded.possible:
        return " (not judged)"
    return " (bonus)" if graded.task.bonus else ""


def _check(result: Result) -> dict[str, Any]:
    found = {
        "task": result.task,
        "device": result.device,
        "check": result.name,
        "status": result.status,
        "share": round(result.share, 4),
        "teacher": clean(result.teacher),
    }
    speed = {"ratio": result.ratio, "limit": result.limit}
    return {**found, **{k: round(v, 4) for k, v in speed.items() if v is not None}}


def _title(result: Result) -> str:
    return f"{result.device} {result.name}".strip()


def junit(report: Report) -> str:
    """The report as JUnit XML, a suite for each task."""
    root = ElementTree.Element("testsuites", name=report.assignment.id)
    for graded in report.tasks:
        results = graded.results
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=f"{graded.task.id} {graded.task.title}",
            tests=str(len(results)),
            failures=str(sum(r.status not in (PASSED, NOT_RUN) for r in results)),
            skipped=str(sum(r.status == NOT_RUN for r in results)),
            time=f"{graded.seconds:.3f}",
        )
        for result in results:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=f"{graded.task.id}.{result.device or 'submission'}",
                name=result.name,
                time=f"{result.seconds:.3f}",
            )
            if result.status != PASSED:
                kind = "skipped" if result.status == NOT_RUN else "failure"
                entry = ElementTree.SubElement(case, kind, message=result.status)
                entry.text = clean(result.text)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def columns(report: Report) -> list[str]:
    """The names of a row's cells."""
    tasks = [graded.task.id for graded in report.tasks]
    some = ["answered", "marked"] if report.assignment.questions else []
    last = ["status", "sandbox", "seconds", "digest"]
    return ["submission", "points", *tasks, *some, *last]


def row(report: Report) -> list[str]:
    """A submission in a table of many."""
    tasks = [number(graded.points) for graded in report.tasks]
    status = clean(report.problem) or "graded"
    failed = [
        g.task.id
        for g in report.tasks
        if any(r.status not in (PASSED, WRONG, NOT_RUN) for r in g.results)
    ]
    if failed and not report.problem:
        absent = [note for note in report.notes if note.startswith(ABSENT)]
        status = "; ".join([*absent, f"no values from {' '.join(failed)}"])
    if report.unjudged:
        status = f"not judged: {' '.join(report.unjudged)}"
    return [
        safe_cell(label(report.name)),
        number(report.points),
        *tasks,
        *_answered(report),
        safe_cell(status),
        report.mode,
        f"{report.seconds:.1f}",
        report.digest,
    ]


def _answered(report: Report) -> list[str]:
    """How many questions have an answer, and the points that a teacher gave."""
    if not report.assignment.questions:
        return []
    written = sum(bool(answer.text) for answer in report.answers)
    given = number(sum(answer.points for answer in report.marked))
    return [f"{written} of {len(report.assignment.questions)}", given]


def safe_cell(text: str) -> str:
    """Text that spreadsheet programs do not take for a formula."""
    text = clean(text).replace("\n", " ")
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text
