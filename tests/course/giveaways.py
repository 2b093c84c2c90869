"""How much of a task's solution can be copied from elsewhere in the student's edition.

With this file one can count, for a task, the lines of its solution of which a twin
stands in what its author has before them (`left_to_copy`): the library without the
solutions of this and of all later assignments. Names and comments make no difference.

    python tests/course/giveaways.py a4     # which lines, and where their twins are
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (2, 1)]

from assignments import catalog
from assignments.catalog import Assignment, Task
from assignments.grading.release import PACKAGES, without_solutions

RUN = 3  # statements one after the other that say the same
ENOUGH = 25  # nodes of a syntax tree, of a solution that is shorter than that


@dataclass(frozen=True)
class Line:
    """A statement, or the head of one, without what is only a name.

    Attributes:
        form: its syntax tree, with "_" for each name.
        names: those names, in order.
        number: of its line in the file, from 1.
        nodes: how much there is to it.
    """

    form: str
    names: tuple[str, ...]
    number: int
    nodes: int


def lines_of(body: Sequence[ast.stmt]) -> Iterator[Line]:
    """The statements of a body, and of those within, one after the other."""
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        inner = [
            part
            for name in ("body", "orelse", "finalbody")
            for part in [getattr(node, name, None)]
            if isinstance(part, list)
        ]
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield _line(node)
        for part in inner:
            yield from lines_of(part)


def _line(node: ast.stmt) -> Line:
    """Names are left out, but for those that are called or have members (cuda.grid)."""
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    called |= {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    names: list[str] = []
    count = 0

    def form(part: object) -> str:
        nonlocal count
        if isinstance(part, list):
            return f"[{','.join(map(form, part))}]"
        if not isinstance(part, ast.AST):
            return repr(part)
        count += 1
        if isinstance(part, ast.Name) and id(part) not in called:
            names.append(part.id)
            return "_"
        skipped = ("ctx", "type_comment", "annotation", "returns", "kind", "simple")
        if part is node:
            skipped += ("body", "orelse", "finalbody")
        fields = (form(v) for n, v in ast.iter_fields(part) if n not in skipped)
        return f"{type(part).__name__}({','.join(fields)})"

    said = form(node)
    said = said.replace("AnnAssign(", "Assign(")
    return Line(said, tuple(names), node.lineno, count)


def signature(lines: Sequence[Line]) -> tuple[str, ...]:
    """What lines say, with names numbered in the order in which they come."""
    numbers: dict[str, int] = {}
    said = []
    for line in lines:
        order = [numbers.setdefault(name, len(numbers)) for name in line.names]
        said.append(f"{line.form} {order}")
    return tuple(said)


# ------------------------------------------------------------------- the two sides


@dataclass(frozen=True)
class Twin:
    """Lines of a solution that stand elsewhere, too."""

    path: str
    lines: tuple[int, ...]
    where: str


@cache
def edition(assignment: str) -> dict[tuple[str, ...], str]:
    """All runs of up to RUN lines of functions in the student's edition, and where."""
    found: dict[tuple[str, ...], str] = {}
    removed = _from(assignment)
    listed = {file.source for a in catalog.load_all() for file in a.files}
    for package in PACKAGES:
        for path in sorted((catalog.LIBRARY / package).rglob("*.py")):
            name, text = path.relative_to(catalog.LIBRARY).as_posix(), path.read_text()
            if path in listed or "# BEGIN TWIN a" in text:
                text = without_solutions(text, name, removed)
            for run, where in _runs(text, name).items():
                found.setdefault(run, where)
    return found


@cache
def _runs(text: str, name: str) -> dict[tuple[str, ...], str]:
    """The runs of a file's functions."""
    found: dict[tuple[str, ...], str] = {}
    for function in _functions(ast.parse(text)):
        lines = list(lines_of(function.body))
        for size in range(1, RUN + 1):
            for i in range(len(lines) - size + 1):
                run = signature(lines[i : i + size])
                found.setdefault(run, f"{name}: {function.name}")
    return found


def _from(assignment: str) -> set[str]:
    """The tasks of an assignment, and of all later ones."""
    order = catalog.ids()
    later = order[order.index(assignment) :]
    return {task.id for name in later for task in catalog.load(name).tasks}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def solution(assignment: Assignment, task: Task) -> Iterator[tuple[str, list[Line]]]:
    """The lines of a task's regions, one function at a time."""
    for file in assignment.files:
        if not file.module:
            continue
        tree = ast.parse(file.source.read_text())
        cuts = [
            c
            for r in file.regions()
            if r.task == task.id and not r.twin
            for c in r.cuts
        ]
        for cut in cuts:
            around = [f for f in _functions(tree) if f.lineno <= cut.first + 1]
            around = [f for f in around if (f.end_lineno or 0) >= cut.last]
            innermost = max(around, key=lambda f: f.lineno)
            lines = lines_of(innermost.body)
            inside = [n for n in lines if cut.first < n.number <= cut.last]
            if inside:
                yield file.path, inside


def twins(task: Task) -> tuple[int, list[Twin]]:
    """How many lines a task's solution has, and those that stand elsewhere."""
    known, total, found = edition(task.assignment), 0, []
    for path, lines in solution(catalog.load(task.assignment), task):
        total += len(lines)
        size = min(RUN, len(lines))
        if len(lines) < RUN and sum(line.nodes for line in lines) < ENOUGH:
            continue
        for i in range(len(lines) - size + 1):
            run = lines[i : i + size]
            where = known.get(signature(run))
            if where is not None:
                found.append(Twin(path, tuple(n.number for n in run), where))
    return total, found


def left_to_copy(task: Task) -> tuple[int, int]:
    """How many lines of a task's solution stand elsewhere, and how many it has."""
    total, found = twins(task)
    return len({(t.path, n) for t in found for n in t.lines}), total


def main() -> None:
    """Print, for each task, how much can be copied, and from where."""
    for assignment in catalog.load_all():
        for task in assignment.tasks:
            if not sys.argv[1:] or {task.id, assignment.id} & set(sys.argv[1:]):
                count, total = left_to_copy(task)
                print(f"{task.id}: {count} of {total} lines")
                for twin in twins(task)[1] if sys.argv[1:] else ():
                    first, last = min(twin.lines), max(twin.lines)
                    print(f"  {twin.path}:{first}-{last} is in {twin.where}")


if __name__ == "__main__":
    main()
