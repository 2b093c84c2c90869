"""Tasks are regions of the library: find them, and take them out.

With this file one can read the regions of a file (`parse`), write the file as a student
gets it (`strip`), and name the functions that a task asks for (`functions_of`).

A region stands between two comments:

    # BEGIN SOLUTION a3.2
    ...
    # END SOLUTION a3.2

Either it is a part of one function's body, which disappears as a whole; or it holds
whole functions and classes, of which signatures and docstrings stay. In the place of
what disappears stand a comment that says what to write, and `todo("a3.2")`, which
raises an error with the task's name. A Mojo file has regions of the first kind.

What is written elsewhere in so much the same way that it gives a solution away is its
twin. It stands between `BEGIN TWIN a3.2` and `END TWIN a3.2`, and is left out wherever
the solution is. Nobody writes it again: what runs is the library's (`twins_in`).
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from assignments import syntax

MARKER = re.compile(r"^\s*#\s*(BEGIN|END) (SOLUTION|TWIN) (\S+)\s*$")
TASK = re.compile(r"^a\d+w?\.\d+$")
WIDTH = 88
IMPORT = "from minitorch.todo import todo"
TWIN = "# Left out, because it is much like {task}; the library has it."

# (task, the function it stands in) -> what its author should know
Texts = Callable[[str, str], str]


class RegionError(ValueError):
    """Markers that do not make sense; says in which file and line."""


@dataclass(frozen=True)
class Cut:
    """Lines that disappear from one function.

    Attributes:
        function: its name with those of the classes around it, "Module.train".
        first, last: the lines, counted from 0; `last` is not one of them.
        indent: how far the body is indented.
    """

    function: str
    first: int
    last: int
    indent: int


@dataclass(frozen=True)
class Region:
    """One marked part of a file.

    Attributes:
        task: "a3.2".
        first, last: the lines between the markers, counted from 0.
        cuts: what disappears, one entry for each function.
        twin: whether it only resembles the solution of its task.
    """

    task: str
    first: int
    last: int
    cuts: tuple[Cut, ...]
    twin: bool = False


# ------------------------------------------------------------------------- reading


def parse(text: str, name: str) -> list[Region]:
    """The regions of a Python or Mojo file, in order.

    Args:
        text: the file's text.
        name: what to call the file in errors; its suffix tells the language.

    Raises:
        RegionError: markers that are not in pairs, are nested, cut through a
            statement, or stand outside functions.
    """
    lines = text.splitlines()
    spans = list(_spans(lines, name))
    if not spans:
        return []
    if name.endswith(".mojo"):
        return [_mojo_region(text, name, *span) for span in spans]
    tree = syntax.parse(text, name)
    regions = []
    for task, first, last in spans:
        cuts = tuple(_cuts(tree, lines, first, last, name))
        if not cuts:
            raise RegionError(f"{name}:{first}: the region of {task} is empty")
        twin = " TWIN " in lines[first - 1]
        regions.append(Region(task, first, last, cuts, twin))
    return regions


def _spans(lines: Sequence[str], name: str) -> Iterator[tuple[str, int, int]]:
    """Task, first line and end of what stands between each pair of markers."""
    open_task, begin = "", 0
    for number, line in enumerate(lines):
        marker = MARKER.match(line)
        if marker is None:
            continue
        kind, _, task = marker.groups()
        where = f"{name}:{number + 1}"
        if not TASK.match(task):
            raise RegionError(f"{where}: {task!r} is no task; expected one like a3.1")
        if kind == "BEGIN":
            if open_task:
                raise RegionError(f"{where}: {task} begins inside {open_task}")
            open_task, begin = task, number + 1
        elif task != open_task:
            raise RegionError(
                f"{where}: {task} ends, but {open_task or 'none'} is open"
            )
        else:
            yield task, begin, number
            open_task = ""
    if open_task:
        raise RegionError(f"{name}:{begin}: {open_task} has no end")


Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _cuts(
    tree: ast.Module, lines: Sequence[str], first: int, last: int, name: str
) -> Iterator[Cut]:
    path, inside = _inside(tree, first, last, f"{name}:{first}")
    functions = [n for n, node in path if not isinstance(node, ast.ClassDef)]
    if functions:
        # The innermost definitions do not matter: a student sees the outermost one.
        outer = [n for n, node in path]
        depth = next(
            i for i, (_, d) in enumerate(path) if not isinstance(d, ast.ClassDef)
        )
        yield Cut(".".join(outer[: depth + 1]), first, last, inside[0].col_offset)
        return
    prefix = "".join(f"{n}." for n, _ in path)
    for node in inside:
        if not isinstance(node, Definition):
            raise RegionError(
                f"{name}:{node.lineno}: outside of functions a region may only hold "
                f"functions and classes"
            )
        yield from _bodies(node, prefix, lines)


def _inside(
    tree: ast.Module, first: int, last: int, where: str
) -> tuple[list[tuple[str, ast.AST]], list[ast.stmt]]:
    """The definitions around lines first to last, and the statements in them."""
    path: list[tuple[str, ast.AST]] = []
    block: list[ast.stmt] = tree.body
    while True:
        touched = [s for s in block if _start(s) < last and _end(s) > first]
        whole = [s for s in touched if _start(s) >= first and _end(s) <= last]
        if whole and len(whole) == len(touched):
            return path, whole
        if len(touched) != 1 or whole:
            raise RegionError(f"{where}: a region must hold whole statements")
        node = touched[0]
        if isinstance(node, Definition):
            path.append((node.name, node))
        block = [s for body in _blocks(node) for s in body]


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield [s for s in getattr(node, field, []) if isinstance(s, ast.stmt)]
    for handler in getattr(node, "handlers", []):
        yield handler.body


def _start(node: ast.stmt) -> int:
    """The first line of a statement or of its decorators, counted from 0."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)]) - 1


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _bodies(node: ast.stmt, prefix: str, lines: Sequence[str]) -> Iterator[Cut]:
    """The bodies, after their docstrings, of all functions in a definition."""
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            yield from _bodies(child, f"{prefix}{node.name}.", lines)
        return
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    body = node.body
    documented = ast.get_docstring(node, clean=False) is not None
    code = body[1:] if documented else body
    if not code:
        return
    first = _end(body[0]) if documented else _start(body[0])
    while not documented and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    yield Cut(prefix + node.name, first, _end(body[-1]), body[0].col_offset)


def _mojo_region(text: str, name: str, task: str, first: int, last: int) -> Region:
    """A region of a Mojo file, which is a part of one function's body."""
    from assignments.mojo_text import definitions

    code = [line for line in text.splitlines()[first:last] if line.strip()]
    if not code:
        raise RegionError(f"{name}:{first}: the region of {task} is empty")
    around = [
        (begin, function)
        for function, (begin, end) in definitions(text).items()
        if begin < first and last <= end
    ]
    indent = len(code[0]) - len(code[0].lstrip())
    if not around or indent == 0:
        raise RegionError(f"{name}:{first}: {task} must be inside a function's body")
    return Region(task, first, last, (Cut(max(around)[1], first, last, indent),))


def functions_of(regions: Collection[Region], task: str) -> set[str]:
    """The names of the functions that a task's regions change, "Module.train"."""
    own = (r for r in regions if r.task == task and not r.twin)
    return {cut.function for r in own for cut in r.cuts}


def twins_in(text: str, name: str) -> set[str]:
    """The names of the functions in which a file has twins of solutions."""
    twins = (r for r in parse(text, name) if r.twin) if " TWIN " in text else ()
    return {cut.function for r in twins for cut in r.cuts}


# ------------------------------------------------------------------------- writing


def strip(
    text: str,
    name: str,
    tasks: Collection[str] | None = None,
    texts: Texts | None = None,
) -> str:
    """The file without the solutions of `tasks`, and without any marker.

    Args:
        text: the file's text.
        name: what to call the file in errors; its suffix tells the language.
        tasks: what to take out; everything if None.
        texts: what to say in the place of a region (see `Texts`).
    """
    lines = text.splitlines()
    cuts = [
        (cut, region)
        for region in parse(text, name)
        if tasks is None or region.task in tasks
        for cut in region.cuts
    ]
    kept: list[str | None] = list(lines)
    for cut, region in cuts:
        task, said = region.task, ""
        if texts and not region.twin:
            said = texts(task, cut.function)
        block = comment_block(task, said, cut.indent)
        if region.twin:
            block = [" " * cut.indent + TWIN.format(task=task)]
        block.append(" " * cut.indent + stub(task, name))
        kept[cut.first : cut.last] = [
            "\n".join(block),
            *[None] * (cut.last - cut.first - 1),
        ]
    if cuts and not name.endswith(".mojo"):
        at = _last_import(syntax.parse(text, name))
        ours = re.search(r"^from (minitorch|fast_ops|cuda_ops)\b", text, re.MULTILINE)
        gap = "\n" if ours else "\n\n"
        kept[at - 1] = f"{kept[at - 1]}{gap}{IMPORT}"
    return _without_markers([line for line in kept if line is not None])


def stub(task: str, name: str) -> str:
    """What stands in the place of a solution: an error with the task's name.

    Mojo has no `todo`; a function there raises an Error, with the same words.
    """
    if name.endswith(".mojo"):
        return f'raise Error("task {task} is not implemented yet")'
    return f'todo("{task}")'


def comment_block(task: str, text: str, indent: int) -> list[str]:
    """Comment lines that tell what to write, one paragraph for each line of `text`."""
    margin = " " * indent + "# "
    said = [f"TODO {task}: {text}".rstrip(": ")] if text else [f"TODO {task}"]
    lines = []
    for paragraph in said[0].splitlines():
        lines += textwrap.wrap(
            paragraph, WIDTH, initial_indent=margin, subsequent_indent=margin
        )
    return lines


def _last_import(tree: ast.Module) -> int:
    """The last line, counted from 1, of the imports at the top of a file."""
    ends = [_end(s) for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    if ends:
        return ends[-1]
    documented = ast.get_docstring(tree) is not None
    return _end(tree.body[0]) if documented else 1


def _without_markers(parts: Sequence[str]) -> str:
    """The lines without markers, and without the empty lines that those leave."""
    lines = [line for part in parts for line in part.split("\n")]
    out: list[str] = []
    dropped = False
    for line in lines:
        if MARKER.match(line):
            dropped = True
            continue
        if dropped and not line.strip() and (not out or not out[-1].strip()):
            continue
        dropped = False
        out.append(line)
    return "\n".join(out).rstrip("\n") + "\n"
