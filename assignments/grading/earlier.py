"""Earlier work that is carried along: a3 on top of the student's own a1 and a2.

With this file the grader takes a submission of another assignment (`read`) and puts its
files in the place of the library's. The assignment that is graded keeps its own files,
and of the files that several pieces of earlier work have, the first one counts, as in
`minitorch test --with`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assignments import catalog
from assignments.catalog import Assignment
from assignments.grading import intake, submission
from assignments.grading.apart import Refused, limited
from assignments.workspace import MARK

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Earlier:
    """Files of earlier assignments.

    Attributes:
        files: for a path in the library, a student's file.
        digest: of all that was handed in; "" for nothing.
        notes: what could not be used, for the report.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    digest: str = ""
    notes: tuple[str, ...] = ()


NOTHING = Earlier()


def read(word: str, graded: Assignment, read_code: bool = True) -> Earlier:
    """The earlier work in a folder or a zip.

    What is no Python, or not allowed, is left out: the library's file stays there.

    Args:
        word: where it is; "a2=PATH" where the folder does not say what it is for.
        graded: the assignment that it is carried to, whose files stay.
        read_code: whether what is not allowed is left out.

    Raises:
        Refused: it cannot be opened, or nobody knows what it is for.
    """
    assignment, path = _assignment_of(word)
    if assignment == graded:
        raise Refused(f"--with {word} is {graded.id} itself; expected earlier work")
    taken = intake.read(path, assignment, read_code, [""])
    if taken.refused:
        raise Refused(taken.refused)
    files, problems = taken.usable(""), taken.problems[""]
    own = {file.path for file in graded.files}
    used = {
        file.path: files[file.path]
        for file in assignment.files
        if file.path in files
        and file.path not in own
        and not file.module.startswith("assignments.")
    }
    notes = [f"earlier work of {assignment.id}: {path.name}, {len(used)} files"]
    notes += [f"left out of it, {line}" for line in problems.values()]
    return Earlier(used, taken.digest, tuple(notes))


def _assignment_of(word: str) -> tuple[Assignment, Path]:
    name, equals, rest = word.partition("=")
    if equals and name in catalog.ids():
        return catalog.load(name), Path(rest)
    path = Path(word)
    found = limited(mark, path.absolute())
    if not found:
        raise Refused(
            f"{path} has no {MARK}, which says what it is for; name the assignment: "
            f"--with a2={path}"
        )
    try:
        return catalog.load(found[0]), path
    except ValueError as error:
        raise Refused(f"{path}/{MARK} names no assignment: {error}") from None


def mark(path: Path) -> list[str]:
    """The assignment that a workspace says it is for; [] if it does not say."""
    found = submission.read_files(path, [MARK])
    if MARK not in found:
        return []
    try:
        values = tomllib.loads(found[MARK].decode(errors="replace"))
        return [str(values["assignment"])]
    except (ValueError, KeyError, RecursionError) as error:
        raise Refused(f"{path}/{MARK} names no assignment: {error}") from None


def merged(parts: Sequence[Earlier]) -> Earlier:
    """Several pieces of earlier work as one; the first one that has a file counts."""
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    files: dict[str, bytes] = {}
    for part in parts:
        files = {**part.files, **files}
    digests = " ".join(part.digest for part in parts).encode()
    notes = tuple(note for part in parts for note in part.notes)
    return Earlier(files, hashlib.blake2b(digests, digest_size=16).hexdigest(), notes)
