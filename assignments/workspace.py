"""A student's folder for one assignment.

With this file one can make it (`create`), know which assignment a folder is for
(`read`, `find`), list its files by the modules that they replace (`files_of`), and keep
what the last run of the checks said (`record`, `progress`).

    a3/
        README.md          the handout
        answers.md         for the answers to its questions
        AGENTS.md          tells assistants how to help without solving
        workspace.toml     which assignment this is
        conftest.py        lets pytest run the checks
        course.py          `import course` in a script makes it use these files
        hints.json         how many hints were taken, once there are any
        fast_ops/...       the assignment's files, without the solutions
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assignments import catalog, overlay, syntax
from assignments.answers import ANSWERS, template
from assignments.catalog import Assignment, File, Task
from assignments.regions import strip, stub

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MARK = "workspace.toml"
PROGRESS = ".progress.json"
LINE = 88  # characters of a line that is shown
FILES = "files"  # in the progress, beside the tasks
HINTS = "hints.json"  # handed in with the rest
LINK = r"\[[^][]*\]\(\.\./\.\./([^)#]*)[^)]*\)"  # out of the assignments' folder

CONFTEST = '''"""Lets pytest check this folder: `pytest`, `pytest -m task{number}`."""

from __future__ import annotations

import course

pytest_plugins = ["assignments.pytest_plugin"]
'''

COURSE = '''"""`import course` first, and minitorch uses the files of this folder."""

from __future__ import annotations

from pathlib import Path

from assignments.workspace import use

use(Path(__file__).parent)
'''


@dataclass(frozen=True)
class Workspace:
    """A folder in which a student works on an assignment.

    Attributes:
        folder: where it is.
        assignment: what it is for.
        earlier: folders with earlier work that is used as well.
    """

    folder: Path
    assignment: Assignment
    earlier: tuple[Path, ...] = ()

    @property
    def folders(self) -> list[Path]:
        """This folder and those with earlier work."""
        return [self.folder, *self.earlier]


# -------------------------------------------------------------------------- making


def create(
    assignment: Assignment,
    folder: Path,
    earlier: Sequence[Path] = (),
    force: bool = False,
) -> Path | None:
    """Make a workspace.

    Args:
        assignment: what it is for.
        folder: where; made if it is missing.
        earlier: workspaces with earlier work, to use that instead of the library's.
        force: where the folder has files already, move it aside first.

    Returns:
        Where the old folder was moved to, if it was.

    Raises:
        OSError: the folder has files, and `force` is not set, or cannot be made.
        ValueError: a folder of `earlier` is no workspace.
    """
    others = [read(path).folder for path in earlier]
    folder, backup = folder.resolve() if folder.name in ("", "..") else folder, None
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"start: {folder} is a file; name another folder")
    if folder.exists() and any(folder.iterdir()):
        if not force:
            raise FileExistsError(
                f"start: {folder} is not empty; name another folder, or pass --force "
                f"to move it aside"
            )
        if Path.cwd().is_relative_to(folder.resolve()):
            raise FileExistsError(
                f"start: --force moves {folder} aside, and you are in it; call this "
                f"in the folder above"
            )
        backup = _free_name(folder)
    part = folder.with_name(f".{folder.name}.part")
    try:
        if part.exists():
            shutil.rmtree(part)
        part.mkdir(parents=True)
        _fill(assignment, part, others)
        if backup is not None:  # not before the new one is whole
            folder.rename(backup)
        _move(part, folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise OSError(
            f"start: {folder} cannot be made: {error.strerror}; name another folder"
        ) from error
    return backup


def _move(part: Path, folder: Path) -> None:
    """Give a folder its name; one that is there, and empty, may be a shell's own."""
    if not folder.exists():
        part.rename(folder)
        return
    for entry in part.iterdir():
        entry.rename(folder / entry.name)
    part.rmdir()


def _free_name(folder: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name, number = folder.with_name(f"{folder.name}-backup-{stamp}"), 1
    while name.exists():
        number += 1
        name = folder.with_name(f"{folder.name}-backup-{stamp}-{number}")
    return name


def _fill(assignment: Assignment, folder: Path, earlier: Sequence[Path]) -> None:
    for path, text in stripped(assignment).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for page in sorted(assignment.folder.iterdir()):
        if page.suffix == ".md":  # links to the library's pages would lead nowhere
            text = re.sub(LINK, r"the library's \1", page.read_text())
            (folder / page.name).write_text(text)
        elif page.suffix in (".svg", ".png"):
            shutil.copyfile(page, folder / page.name)
    if assignment.questions:
        (folder / ANSWERS).write_text(template(assignment))
    shutil.copyfile(catalog.FOLDER / "assistants.md", folder / "AGENTS.md")
    (folder / MARK).write_text(_mark(assignment, earlier))
    number = f"{assignment.tasks[0].id[1:].replace('.', '_')}"
    (folder / "conftest.py").write_text(CONFTEST.format(number=number))
    (folder / "course.py").write_text(COURSE)
    marks = "".join(f"    {t.marker}: {t.id} {t.title}\n" for t in assignment.tasks)
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = -q\nmarkers =\n{marks}")


def _mark(assignment: Assignment, earlier: Sequence[Path]) -> str:
    lines = [
        f"# A workspace for {assignment.id}, {assignment.title}.",
        f'assignment = "{assignment.id}"',
        f"earlier = {json.dumps([str(path) for path in earlier])}",
    ]
    return "\n".join(lines) + "\n"


def stripped(
    assignment: Assignment, tasks: Sequence[str] | None = None
) -> dict[str, str]:
    """The text of each of the assignment's files without the solutions.

    Args:
        tasks: which to take out; all tasks of the assignment if None.
    """
    tasks = [task.id for task in assignment.tasks] if tasks is None else tasks

    def without(path: str, source: str) -> str:
        def text(task: str, function: str) -> str:
            return assignment.task(task).text(function, path)

        return strip(source, path, tasks, text)

    return {f.path: without(f.path, f.source.read_text()) for f in assignment.files}


def untouched(assignment: Assignment, task: Task, files: Mapping[str, bytes]) -> bool:
    """Whether the code that is checked for a task is still that of a new workspace.

    Then nothing has to run to know that nothing of it is written.

    Args:
        files: what somebody has, by their paths in the workspace.
    """
    own = (task.id, *task.uses)
    stubs = [(path, stub(name, path)) for path in files for name in own]
    if not any(s.encode() in files[path] for path, s in stubs):
        return False  # told at once, without reading the library
    fresh, others = stripped(assignment), assignment.others(task.id)
    left = [(path, s) for path, s in stubs if s in fresh.get(path, "")]
    # Without any: a student edition has the solutions of earlier assignments.
    return (
        bool(left)
        and fresh.keys() <= files.keys()
        and all(text.encode() in files[path] for path, text in left)
        and all(
            _same_code(files[file.path], fresh[file.path], others, file)
            for file in assignment.files
        )
    )


def contents(workspace: Workspace) -> dict[str, bytes]:
    """The assignment's files that can be read, by their paths in the workspace."""
    found = {}
    for file in workspace.assignment.files:
        with suppress(OSError):
            found[file.path] = (workspace.folder / file.path).read_bytes()
    return found


def _same_code(data: bytes, text: str, others: dict[str, set[str]], file: File) -> bool:
    """Whether a file has this code, apart from functions of other tasks."""
    try:
        own = syntax.text_of(data)
        if own == text:
            return True
        if not file.module:
            return False
        trees = [syntax.parse(one, file.path) for one in (own, text)]
    except (ValueError, SyntaxError):
        return False
    for tree in trees:
        overlay.remove(tree, others[file.module])
    return ast.dump(trees[0]) == ast.dump(trees[1])


# -------------------------------------------------------------------------- finding


def read(folder: Path) -> Workspace:
    """The workspace in a folder.

    Raises:
        ValueError: it is none.
    """
    mark = folder / MARK
    if not mark.is_file():
        raise ValueError(
            f"{folder} is no workspace (it has no {MARK}); make one with "
            f"`minitorch start a1`"
        )
    try:
        values = tomllib.loads(mark.read_text())
        assignment = catalog.load(values["assignment"])
    except (ValueError, KeyError) as error:  # damaged, or another program's
        raise ValueError(
            f"{mark} does not say which assignment is in its folder ({error}); "
            f'expected a line such as assignment = "a1"'
        ) from None
    earlier = tuple(Path(path) for path in values.get("earlier", ()))
    return Workspace(folder.resolve(), assignment, earlier)


def find(start: Path) -> Workspace:
    """The workspace that `start` is in."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / MARK).is_file():
            return read(folder)
    return read(start)


def near(start: Path) -> list[Workspace]:
    """The workspaces around a folder: itself, beside it, and in it."""
    start = start.resolve()
    places = [start, *start.glob("*")]
    if (start / MARK).is_file():
        places += start.parent.glob("*")
    found = {p.resolve(): read(p) for p in places if (p / MARK).is_file()}
    return sorted(
        found.values(), key=lambda w: (catalog.order(w.assignment.id), w.folder)
    )


def files_of(folders: Sequence[Path]) -> dict[str, Path]:
    """For each module that workspaces replace, the file of the first that has one."""
    files: dict[str, Path] = {}
    for folder in folders:
        for file in read(Path(folder)).assignment.files:
            path = Path(folder).resolve() / file.path
            if file.module and path.is_file():
                files.setdefault(file.module, path)
    return files


def syntax_errors(workspace: Workspace) -> dict[str, str]:
    """For each file that is no Python, or no text: what is wrong, and where."""
    found = {}
    for file in workspace.assignment.files:
        path = workspace.folder / file.path
        if not (file.module or file.is_mojo) or not path.is_file():
            continue
        try:
            text = syntax.text_of(path.read_bytes())
            if file.module:
                compile(text, str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            line, at = (error.text or "").rstrip("\n"), (error.offset or 1) - 1
            first = max(0, at - LINE // 2)  # the part of a long line that counts
            caret = re.sub(r"[^\t]", " ", line[first:at]).ljust(at - first) + "^"
            line = line[first : first + LINE]
            place = f"{file.path}, line {error.lineno or 1}: {error.msg}"
            shown = [f"    {text}" for text in (line, caret)] if line.strip() else []
            found[file.path] = "\n".join([place, *shown])
        except (ValueError, RecursionError, MemoryError) as error:
            found[file.path] = f"{file.path}: it cannot be read: {error}"
    return found


def use(folder: Path) -> None:
    """Let the workspace's files take the place of the library's, in this process.

    Nothing happens where that is the case already.
    """
    if not any(isinstance(finder, overlay.Overlay) for finder in sys.meta_path):
        overlay.install(files_of(read(folder).folders))


# ------------------------------------------------------------------------- progress


def record(
    workspace: Workspace,
    parts: dict[str, dict[str, float | None]],
    tested: Sequence[str] = (),
) -> None:
    """Keep which part of its points each task has earned, {task: {device: part}}.

    Args:
        parts: kept beside what is known; None for a device that could not run.
        tested: the tasks that were checked just now, with the files as they are.
    """
    known = {**progress(workspace), **parts}
    files = known.setdefault(FILES, {})
    files.update(dict.fromkeys(tested, _digests(workspace)))
    path = workspace.folder / PROGRESS
    part = path.with_suffix(".part")
    part.write_text(json.dumps(known, indent=1))
    part.replace(path)


def changed(workspace: Workspace) -> list[str]:
    """The files that have changed since a task was last checked."""
    now = _digests(workspace)
    found = {
        path
        for before in progress(workspace).get(FILES, {}).values()
        for path in now
        if before.get(path) != now[path]
    }
    return sorted(found)


def _digests(workspace: Workspace) -> dict[str, str]:
    """For each of the assignment's files, what changes when it does."""
    found = {}
    for file in workspace.assignment.files:
        path = workspace.folder / file.path
        data = path.read_bytes() if path.is_file() else b""
        found[file.path] = hashlib.blake2b(data, digest_size=8).hexdigest()
    return found


def progress(workspace: Workspace) -> dict[str, Any]:
    """What was recorded when the tasks were last checked."""
    path = workspace.folder / PROGRESS
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    # Before there were files in it, it held points, not parts of them.
    return found if isinstance(found, dict) and FILES in found else {}


# ---------------------------------------------------------------------------- hints


def hints_taken(workspace: Workspace) -> dict[str, int]:
    """For each task, how many of its hints are open."""
    try:
        text = (workspace.folder / HINTS).read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    return read_hints(text, workspace.assignment)


def read_hints(text: str, assignment: Assignment) -> dict[str, int]:
    """The same from the text of `hints.json`, which may hold anything."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    taken = {}
    for task in assignment.tasks:
        count = found.get(task.id) if isinstance(found, dict) else None
        if type(count) is int and count > 0:
            taken[task.id] = min(count, len(task.hints))
    return taken


def take_hint(workspace: Workspace, task: Task) -> int:
    """Open the next hint of a task; how many are open now."""
    taken = hints_taken(workspace)
    taken[task.id] = min(taken.get(task.id, 0) + 1, len(task.hints))
    (workspace.folder / HINTS).write_text(json.dumps(taken, indent=1) + "\n")
    return taken[task.id]


def hints_line(assignment: Assignment, taken: dict[str, int]) -> str:
    """ "hints taken: a4.3 2 of 3"; "" if none was."""
    parts = [
        f"{task.id} {taken[task.id]} of {len(task.hints)}"
        for task in assignment.tasks
        if taken.get(task.id)
    ]
    return f"hints taken: {', '.join(parts)}" if parts else ""
