"""The questions at the end of a handout, and what students write about them.

With this file one can make the page that collects answers (`template`), find them in
what was handed in (`read`), and read the points that a teacher gives (`read_marks`).
Nobody else gives any: an answer without a teacher's points counts neither for nor
against. Questions stand in the handout; their points, and what earns them, in
`assignment.toml`:

    [[question]]
    points = 2
    rubric = "1: both times, with the machine; 1: where the difference goes."
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assignments.catalog import Assignment

ANSWERS = "answers.md"
HERE = "<!-- your answer -->"
ITEM = re.compile(r"^(\d+)\. ", re.M)
HEADING = re.compile(r"^## (\d{1,3})\. \(.*$", re.M)
HEAD = """# {id}: answers

Write below each line `{here}`. With every number say on which machine it was
measured. If an assistant has helped you, say which and for what.

Hours that this assignment took me (nobody grades that):
"""

Mark = tuple[float, str]  # points and a comment
Marks = Mapping[str, Mapping[int, Mark]]  # by the submission's name and the question


@dataclass(frozen=True)
class Answer:
    """What somebody wrote about one question.

    Attributes:
        number: of the question, from 1.
        possible: the points that it can earn.
        rubric: what earns them.
        text: the answer, "" if there is none.
        points: that a teacher gave; None if nobody did.
        comment: the teacher's.
    """

    number: int
    possible: float
    rubric: str
    text: str
    points: float | None = None
    comment: str = ""


def questions(assignment: Assignment) -> list[str]:
    """The text of each question, as it stands in the handout."""
    handout = (assignment.folder / "README.md").read_text("utf-8")
    section = handout.partition("\n## Measure and answer\n")[2].partition("\n## ")[0]
    return [text.strip("\n") for text in ITEM.split(section)[2::2]]


def template(assignment: Assignment) -> str:
    """The page to fill in."""
    parts = [HEAD.format(id=assignment.id, here=HERE)]
    for number, text in enumerate(questions(assignment), 1):
        asked = assignment.questions[number - 1]
        lines = [line.removeprefix("   ") for line in text.splitlines()]
        quoted = "\n".join(f"> {line}".rstrip() for line in lines)
        points = f"{asked.points:g} points"
        title = f"## {number}. ({points})"
        parts.append(f"{title}\n\n{quoted}\n\n*Points: {asked.rubric}*\n\n{HERE}\n\n")
    return "\n".join(parts)


def read(text: str, assignment: Assignment) -> tuple[Answer, ...]:
    """The answers in a page that was filled in, which may hold anything."""
    given: dict[int, str] = {}
    pieces = HEADING.split(text)
    for number, body in zip(pieces[1::2], pieces[2::2]):
        if HERE not in body:  # it was written over, and what is ours still stands there
            ours = (">", "*Points: ")
            lines = [s for s in body.splitlines() if not s.startswith(ours)]
            body = "\n".join(lines)
        given.setdefault(int(number), body.rpartition(HERE)[2].strip())
    return tuple(
        Answer(number, asked.points, asked.rubric, given.get(number, ""))
        for number, asked in enumerate(assignment.questions, 1)
    )


def marked(answers: Sequence[Answer], marks: Mapping[int, Mark]) -> tuple[Answer, ...]:
    """The same answers with a teacher's points."""
    return tuple(
        replace(one, points=marks[one.number][0], comment=marks[one.number][1])
        if one.number in marks
        else one
        for one in answers
    )


def read_marks(path: Path, assignment: Assignment) -> Marks:
    """A teacher's table: submission,question,points,comment.

    Raises:
        ValueError: a line that makes no sense, with its number.
    """
    marks: dict[str, dict[int, Mark]] = {}
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"marks: {path} is not UTF-8 ({error}); save it as CSV in UTF-8"
        ) from None
    table = csv.DictReader(io.StringIO(text, newline=""))
    lacking = {"submission", "question", "points"} - set(table.fieldnames or ())
    if lacking:
        raise ValueError(
            f"marks: {path} has no column {', '.join(sorted(lacking))}; its first line "
            f"is {text.partition(chr(10))[0].strip()[:80]!r}, expected is "
            f"'submission,question,points,comment', with commas"
        )
    for row in table:
        try:
            number, points = int(row["question"]), float(row["points"])
            most = dict(enumerate(assignment.questions, 1))[number].points
            if not (math.isfinite(points) and 0 <= points <= most):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            count = len(assignment.questions)
            raise ValueError(
                f"marks: {path}, line {table.line_num}: question is "
                f"{row['question']!r} and points are {row['points']!r}; expected "
                f"1 to {count}, and 0 to what the question has"
            ) from None
        of = marks.setdefault(row["submission"], {})
        of[number] = (points, row.get("comment") or "")
    return marks
