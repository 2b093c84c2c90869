"""Reads what was handed in, in a process that may not use up much.

With this file the grader opens a submission and reads its code (`read`) without doing
so itself: zips that are damaged, texts that bring parsers down, and code that takes a
reader for ever end a process with limits (`apart.py`), and not the grader.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assignments import syntax, workspace
from assignments.catalog import Assignment, File
from assignments.grading import reading, submission
from assignments.grading.apart import Refused, limited

DEPTH, PYTHONS_DEPTH = 20_000, sys.getrecursionlimit()


@dataclass(frozen=True)
class Intake:
    """What the grader knows of a submission.

    Attributes:
        digest: the same for submissions with the same contents.
        texts: the files, as all readers see them.
        problems: for a task, what is wrong with which file.
        refused: why nothing could be read; "" if it could.
        hints: how many of a task's hints were taken.
        answers: the text of `answers.md`.
        untouched: the tasks of which nothing is written.
    """

    digest: str
    texts: dict[str, str] = field(default_factory=dict)
    problems: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: str = ""
    hints: dict[str, int] = field(default_factory=dict)
    answers: str = ""
    untouched: Sequence[str] = ()

    def usable(self, task: str) -> dict[str, bytes]:
        """The files without problems; the library's take the place of others."""
        wrong = self.problems[task]
        return {n: t.encode() for n, t in self.texts.items() if n not in wrong}


def read(
    path: Path, assignment: Assignment, read_code: bool, tasks: Sequence[str]
) -> Intake:
    """Read a submission, for each of some tasks; "" for all of them at once.

    Raises:
        FileNotFoundError: there is nothing at this path.
        RuntimeError: the grader has a mistake, and this is its traceback.
    """
    try:
        found = limited(_read, path.absolute(), assignment, read_code, tuple(tasks))
    except Refused as error:
        return Intake(f"refused: {error}", refused=str(error))
    return Intake(**found)


# ----------------------------------------------------------- in the limited process


def _read(
    path: Path, assignment: Assignment, read_code: bool, tasks: Sequence[str]
) -> dict[str, Any]:
    found = submission.read(path, assignment)
    texts: dict[str, str] = {}
    problems: dict[str, dict[str, str]] = {task: {} for task in tasks}
    for file in assignment.files:
        if file.path not in found.files:
            continue
        texts[file.path], problem = _text(file, found.files[file.path])
        for task in tasks:
            said = problem
            if read_code and not said:
                said = _read_code(assignment, file, texts[file.path], task)
            if said:
                problems[task][file.path] = said
    return {
        "digest": found.digest,
        "texts": texts,
        "problems": problems,
        "hints": found.hints,
        "answers": found.answers,
        "untouched": [t for t in tasks if t and _untouched(assignment, t, found.files)],
    }


def _untouched(assignment: Assignment, task: str, files: dict[str, bytes]) -> bool:
    """Whether nothing of a task is written; of what is nested too deeply, something."""
    try:
        return workspace.untouched(assignment, assignment.task(task), files)
    except (RecursionError, MemoryError):
        return False


def _read_code(assignment: Assignment, file: File, text: str, task: str) -> str:
    """What is not allowed; what Python reads is not too deep for whoever reads it."""
    sys.setrecursionlimit(DEPTH)
    try:
        return reading.not_allowed(assignment, file, text, task)
    except (RecursionError, MemoryError):
        return f"{file.path}: it is nested too deeply to be read"
    finally:
        sys.setrecursionlimit(PYTHONS_DEPTH)


def _text(file: File, data: bytes) -> tuple[str, str]:
    """A file's text, and why it cannot be used."""
    problem = why_not_python(data) if file.path.endswith(".py") else ""
    if problem:
        return "", f"{file.path}: {problem}"
    try:
        return reading.as_imported(file, syntax.text_of(data)), ""
    except ValueError as error:
        return "", f"{file.path}: {error}"


def why_not_python(data: bytes) -> str:
    """Why a file is no Python; "" if it is.

    Some of it only a compiler sees, such as a `return` outside of functions.
    """
    try:
        text = syntax.text_of(data)
        syntax.parse(text)
        compile(text, "<submission>", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f" (line {error.lineno})" if error.lineno else ""
        return f"{type(error).__name__}: {str(error.msg)[:200]}{line}"
    except ValueError as error:  # another encoding, or null bytes
        return str(error)[:200]
    except (RecursionError, MemoryError):
        return "it is nested too deeply to be read"
    return ""
