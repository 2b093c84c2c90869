"""The library without the solutions, with a student's files in it.

With this file one can make the folders that workers see: the reference
(`reference_tree`), the library without an assignment's solutions (`stripped_tree`), and
that with a submission's files, for one task (`student_tree`). In the last one, the
functions of the assignment's other tasks are the reference's, so that a mistake in one
task does not count in all others.

None of these folders has checks, oracles, expected values, PyTorch, or another way to
learn what is right.
"""

from __future__ import annotations

import ast
import atexit
import compileall
import functools
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import entry_points
from pathlib import Path

from assignments import catalog, mojo_text, syntax, workspace
from assignments.catalog import Assignment, File
from assignments.regions import functions_of, strip, twins_in

PACKAGES = ("minitorch", "fast_ops", "cuda_ops", "mojo_ops")
# Commands and benchmarks are not needed; they know PyTorch.
LEFT_OUT = ("__pycache__", "cli", "bench", "build", "_build")
COURSE_FILES = (
    "__init__.py",
    "calling.py",
    "grading/__init__.py",
    "grading/wire.py",
    "grading/worker.py",
)
_ONE_AT_A_TIME = threading.Lock()
_TREES: dict[str, Path] = {}


@functools.cache
def scratch() -> Path:
    """A folder of this process, which disappears with it.

    Others may go through it, not list it: in the weaker modes a worker runs as another
    user and has to find its own folder, by a name that cannot be guessed.
    """
    folder = Path(tempfile.mkdtemp(prefix="minitorch-grade-"))
    folder.chmod(0o711)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def new_folder(name: str) -> Path:
    """A new folder that only who knows its name can find."""
    folder = scratch() / f"{name}-{secrets.token_hex(12)}"
    folder.mkdir(mode=0o755)
    return folder


def bare_tree() -> Path:
    """What a worker itself is made of, and nothing more."""

    def make() -> Path:
        folder = new_folder("bare")
        _copy_course(folder)
        return folder

    return _once("bare", make)


def reference_tree(assignment: Assignment) -> Path:
    """The library with the solutions, for the rungs that speed is compared with."""
    return _once(
        f"reference {assignment.slug}",
        lambda: _library(
            assignment,
            {f.path: strip(f.source.read_text(), f.path, ()) for f in assignment.files},
        ),
    )


def stripped_tree(assignment: Assignment) -> Path:
    """The library without the solutions of one assignment."""
    return _once(
        f"stripped {assignment.slug}",
        lambda: _library(assignment, workspace.stripped(assignment)),
    )


def _once(name: str, make: Callable[[], Path]) -> Path:
    """Make a tree when it is needed for the first time."""
    with _ONE_AT_A_TIME:
        if name not in _TREES:
            _TREES[name] = _readable(make())
        return _TREES[name]


def student_tree(
    assignment: Assignment,
    submitted: Mapping[str, bytes],
    task: str,
    earlier: Mapping[str, bytes] | None = None,
    links: bool = False,
) -> Path:
    """A new folder: the stripped library, and a student's work on one task.

    Args:
        submitted: for a file's path in the workspace, what was handed in.
        earlier: work on other assignments, in the place of the library's.
        links: share the library's files with all other trees, which takes a tenth of
            the time; only for workers that see the folder, but cannot write to it.

    Raises:
        SyntaxError: a file that is not Python.
    """
    base = stripped_tree(assignment)
    folder = new_folder("student")
    copy = os.link if links else shutil.copy2
    shutil.copytree(base, folder, copy_function=copy, dirs_exist_ok=True)
    texts = workspace.stripped(assignment)
    for name, data in (earlier or {}).items():
        _replace(folder / name, with_twins(name, data.decode()))
    for file in assignment.files:
        data = submitted.get(file.path, b"")
        text = data.decode() if file.path in submitted else texts[file.path]
        path = folder / place(assignment, file)
        _replace(path, graft(file, text, assignment, task))
    return folder


def _replace(path: Path, text: str) -> None:
    """Put a new file where one was, of which the compiled form is no longer right."""
    path.unlink(missing_ok=True)  # other trees may have a link to it
    _write(path, text)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def remove(folder: Path) -> None:
    """Remove a student's tree."""
    shutil.rmtree(folder, ignore_errors=True)


def place(assignment: Assignment, file: File) -> str:
    """Where a file lies in a tree."""
    if file.module.startswith("assignments."):
        return f"assignments/{assignment.slug}/{file.path}"
    return file.path


def _library(assignment: Assignment, texts: Mapping[str, str]) -> Path:
    """A copy of the library, with an assignment's calls, and texts of its files."""
    folder = new_folder("library")
    for name in PACKAGES:
        source = catalog.LIBRARY / name
        if source.is_dir():
            ignore = shutil.ignore_patterns(*LEFT_OUT)
            shutil.copytree(source, folder / name, ignore=ignore)
    _copy_course(folder)
    own = folder / "assignments" / assignment.slug
    own.mkdir()
    _write(own / "__init__.py", "")
    shutil.copy2(assignment.folder / "calls.py", own / "calls.py")
    _declare_backends(folder)
    for file in assignment.files:
        _write(folder / place(assignment, file), texts[file.path])
    return folder


def _copy_course(folder: Path) -> None:
    for name in COURSE_FILES:
        target = folder / "assignments" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(catalog.FOLDER / name, target)


def _declare_backends(folder: Path) -> None:
    """The entry points by which the library finds its backends."""
    about = folder / "minitorch-0.dist-info"
    about.mkdir()
    _write(about / "METADATA", "Metadata-Version: 2.1\nName: minitorch\nVersion: 0\n")
    known = entry_points(group="minitorch.backends")
    lines = sorted(f"{point.name} = {point.value}" for point in known)
    _write(
        about / "entry_points.txt", "\n".join(["[minitorch.backends]", *lines]) + "\n"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _readable(folder: Path) -> Path:
    """Compile a tree, once for all workers, and let any user read it."""
    compileall.compile_dir(folder, quiet=2)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


# ------------------------------------------------------------------------- grafting


def others(file: File, assignment: Assignment, task: str) -> set[str]:
    """The functions of a file that belong to other tasks than `task`, or to none.

    Those are the twins of solutions, which a workspace's file lacks.
    A task without functions of its own is about what the others' functions do together,
    such as their speed: all of them belong to it.
    """
    twins = twins_in(file.source.read_text(), file.path)
    if not any(functions_of(f.regions(), task) for f in assignment.files):
        return twins
    regions = file.regions()
    names = [functions_of(regions, other.id) for other in assignment.tasks]
    return twins.union(*names) - functions_of(regions, task)


def graft(file: File, text: str, assignment: Assignment, task: str) -> str:
    """A student's file, with the reference's functions for all other tasks.

    Lines of what is before a replaced function keep their numbers. Of a Mojo file only
    the task's functions are the student's.
    """
    if file.is_mojo:
        return mojo_text.as_checked(file, text, assignment, task)
    names = others(file, assignment, task)
    if not names:
        return text
    reference = strip(file.source.read_text(), file.path, ())
    return replace_functions(text, reference, names)


def with_twins(path: str, text: str) -> str:
    """A file of earlier work, with what its workspace did not show."""
    source = (catalog.LIBRARY / path).read_text()
    names = twins_in(source, path)
    return replace_functions(text, strip(source, path, ()), names) if names else text


def replace_functions(text: str, reference: str, names: Collection[str]) -> str:
    """Take the functions called `names` ("Module.train") from `reference`."""
    lines, source = text.splitlines(), reference.splitlines()
    theirs, ours = _definitions(text), _definitions(reference)
    edits = []
    for name in names & ours.keys():
        first, last = ours[name]
        scope = name.rpartition(".")[0]
        if name in theirs:
            edits.append((*theirs[name], source[first:last]))
        elif not scope or scope in theirs:
            at = theirs[scope][1] if scope else len(lines)
            edits.append((at, at, ["", *source[first:last]]))
    for first, last, block in sorted(edits, reverse=True):
        # Blank lines keep the numbers of the lines below, where there is room.
        block = block + [""] * max(0, last - first - len(block))
        lines[first:last] = block
    return "\n".join(lines) + "\n"


def _definitions(text: str) -> dict[str, tuple[int, int]]:
    """First and last line, from 0 and exclusive, of each function and class."""
    found: dict[str, tuple[int, int]] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if not isinstance(
                node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            ):
                continue
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[prefix + node.name] = (first - 1, node.end_lineno or node.lineno)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")

    visit(syntax.parse(text).body, "")
    return found
