"""Read a student's files for what their tasks do not allow.

With this file the grader (`not_allowed`) and the student's own `minitorch test`
(`refused`) read the same lines in the same way, so that nobody is surprised by a 0.
What is not allowed stands in `policy.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from assignments import mojo_text, syntax
from assignments.catalog import Assignment, File, Task
from assignments.grading import allowed, policy
from assignments.grading.examine import REFUSED, Result
from assignments.regions import functions_of, strip, twins_in

USES = "uses.json"  # in a student edition, beside assignment.toml
TITLE = "not allowed in this assignment:"
NUMPY = re.compile(r" of numpy| numpy\.")
GRANTED = "NumPy's functions that this assignment allows:"
# A Mojo file is read by lines, and the compiler has its own idea of what ends one.
LINE_ENDS = frozenset("\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def not_allowed(assignment: Assignment, file: File, text: str, task: str = "") -> str:
    """What is in a student's file and may not be, a line for each; "" if nothing.

    Args:
        task: the task that the file is read for. Other tasks' functions are the
            library's then, and are not looked at. "" for all tasks at once.

    Raises:
        SyntaxError: the file is no Python.
    """
    if file.is_mojo:
        return _not_allowed_in_mojo(assignment, file, text, task)
    if not file.module:
        return ""
    reference = strip(file.source.read_text(), file.path, ())
    found = policy.violations(
        as_imported(file, text), reference, _rules(assignment, file, task)
    )
    lines = [f"  {file.path}, line {v.line}: {v.text}" for v in found]
    if any(NUMPY.search(v.text) for v in found):
        lines.append(f"  {GRANTED} {', '.join(_of_numpy(assignment))}")
    return "\n".join([TITLE, *lines]) if lines else ""


def _of_numpy(assignment: Assignment) -> list[str]:
    """NumPy's functions that an assignment allows."""
    values = {name: getattr(np, name) for name in allowed.MODULES["numpy"]}
    listed = {n for n, v in values.items() if callable(v) and not isinstance(v, type)}
    return sorted(listed | {n.removeprefix("numpy.") for n in assignment.allows})


def as_imported(file: File, text: str) -> str:
    """A module's text without what a student wrote to try it out, and no import runs.

    Nor does it have imports that nobody uses. This text is read, and no other one runs.

    Raises:
        SyntaxError: the file is no Python.
    """
    if not file.module:
        return text
    library = file.source.read_text()
    text = text if "__main__" in library else syntax.without_main(text)
    return syntax.without_unused(text, library)


def _rules(assignment: Assignment, file: File, task: str) -> policy.Rules:
    """What a file is read for: one task and those that it is about, or all."""
    wanted = [task, *assignment.task(task).uses] if task else []
    own, used = _solutions(assignment, file)
    others = {n for t, found in own.items() if task and t not in wanted for n in found}
    others |= twins_in(file.source.read_text(), file.path)  # the library's run, too
    tasks = {t: f for t, f in own.items() if f and (not task or t in wanted)}
    tests = file.module.startswith("assignments.")
    more = assignment.allows
    return policy.Rules(file.path, tasks, frozenset(others), tests, used, more)


def _solutions(
    assignment: Assignment, file: File
) -> tuple[dict[str, set[str]], dict[str, set[tuple[str, str]]]]:
    """The functions of each task, and what they use where they have no solutions."""
    regions = file.regions()
    own = {t.id: functions_of(regions, t.id) for t in assignment.tasks}
    kept = assignment.folder / USES
    if any(own.values()) or not kept.is_file():
        return own, {}
    known = json.loads(kept.read_text()).get(file.path, {})
    own = {task: set(entry["functions"]) for task, entry in known.items()}
    used = {task: {(k, n) for k, n in entry["uses"]} for task, entry in known.items()}
    return own, used


def kept_uses(assignment: Assignment) -> str:
    """What a student edition keeps of the solutions: the names that they use, as JSON.

    So `minitorch test` refuses there what the grader refuses.
    """
    kept: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for file in assignment.files:
        own = _solutions(assignment, file)[0] if file.module else {}
        for task, functions in own.items():
            if functions:
                reference = strip(file.source.read_text(), file.path, ())
                uses = sorted(policy.solution_uses(reference, functions))
                entry: dict[str, list[Any]] = {
                    "functions": sorted(functions),
                    "uses": uses,
                }
                kept.setdefault(file.path, {})[task] = entry
    return json.dumps(kept, indent=1)


def _not_allowed_in_mojo(
    assignment: Assignment, file: File, text: str, task: str
) -> str:
    if LINE_ENDS & set(text):
        return f"{TITLE}\n  {file.path}: characters that end lines for some programs"
    some = [assignment.task(task)] if task else assignment.tasks
    tasks = dict.fromkeys(name for t in some for name in (t.id, *t.uses))
    lines = [
        f"  {file.path}, line {number}: {what}"
        for name in tasks
        for number, what in mojo_text.violations(file, text, assignment, name)
    ]
    return "\n".join([TITLE, *lines]) if lines else ""


def belongs(assignment: Assignment, file: File, task: Task) -> bool:
    """Whether a task is solved in a file, alone or together with others."""
    own = [f.path for f in assignment.files if functions_of(f.regions(), task.id)]
    no_code = not (file.module or file.is_mojo)
    return not own or no_code or file.path in own


def files_of(assignment: Assignment, task: Task) -> set[str]:
    """The paths of the files that a task is solved in."""
    return {f.path for f in assignment.files if belongs(assignment, f, task)}


def refused(assignment: Assignment, folder: Path, task: Task) -> list[str]:
    """The lines of a workspace for which a grader would give no points for a task.

    A file that is no Python is not looked at: the checks say that.
    """
    lines: list[str] = []
    for file in assignment.files:
        path = folder / file.path
        if not path.is_file() or not belongs(assignment, file, task):
            continue
        try:
            text = syntax.text_of(path.read_bytes())
            found = not_allowed(assignment, file, text, task.id)
        except (SyntaxError, ValueError):
            continue
        lines += [line.strip() for line in found.splitlines()[1:]]
    return lines


def refusal(task: Task, device: str, lines: list[str]) -> Result:
    """What takes a task's points, however right its values are.

    Args:
        lines: from `refused`; at least one.
    """
    labels = ["hint" if line.startswith(GRANTED) else "not allowed" for line in lines]
    said = zip(labels, lines)
    hint = (
        "Write it with loops and numbers, or with the operations of tensors and the "
        "functions that handout and file name for this task. What else the file has "
        "or imports may be for other tasks."
    )
    text = "a grader gives no points while these lines are there, whatever they do"
    what = Result(task.id, "", device, REFUSED, text=text)
    return replace(what, lines=(*said, ("hint", hint)))
