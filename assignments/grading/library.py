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

import compileall
import functools
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

from assignments import catalog, mojo_text, overlay, workspace
from assignments.catalog import Assignment, File
from assignments.grading.apart import Refused, limited
from assignments.grading.folders import until_exit
from assignments.regions import functions_of, strip, twins_in

PACKAGES = ("minitorch", "fast_ops", "cuda_ops", "mojo_ops")
# Commands and benchmarks are not needed; they know PyTorch. Byte code comes along.
LEFT_OUT = ("cli", "bench", "build", "_build", "*.nbi", "*.nbc")
COURSE_FILES = (
    "__init__.py",
    "calling.py",
    "fences.py",
    "crawls.py",
    "gpts.py",
    "ranks.py",
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
    folder = until_exit("minitorch-grade-")
    folder.chmod(0o711)
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
    return _once(f"reference {assignment.slug}", lambda: _library(assignment))


def stripped_tree(assignment: Assignment) -> Path:
    """The library without the solutions of one assignment.

    All other files are those of `reference_tree`, which are compiled already.
    """
    whole = reference_tree(assignment)

    def make() -> Path:
        folder = new_folder("library")
        shutil.copytree(whole, folder, copy_function=os.link, dirs_exist_ok=True)
        texts = workspace.stripped(assignment)
        for file in assignment.files:
            path = folder / place(assignment, file)
            _replace(path, texts[file.path].encode())
        return folder

    return _once(f"stripped {assignment.slug}", make)


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
        Refused: a file that cannot be compiled.
    """
    base = stripped_tree(assignment)
    folder = new_folder("student")
    copy = os.link if links else shutil.copy2
    shutil.copytree(base, folder, copy_function=copy, dirs_exist_ok=True)
    grafted: list[tuple[str, str, list[str]]] = []
    for name, data in (earlier or {}).items():
        _replace(folder / name, data)
        source = (catalog.LIBRARY / name).read_text()
        if twins := twins_in(source, name):
            library = strip(source, name, ())
            grafted.append((str(folder / name), library, sorted(twins)))
    others = assignment.others(task)
    for file in assignment.files:
        path = folder / place(assignment, file)
        data = submitted.get(file.path, path.read_bytes())
        if file.is_mojo:
            text = mojo_text.as_checked(file, data.decode(), assignment, task)
            data = text.encode()
        _replace(path, data)
        source = file.source.read_text()
        if kept := others.get(file.module, set()) | twins_in(source, file.path):
            library = strip(source, file.path, ())
            grafted.append((str(path), library, sorted(kept)))
    problem = limited(overlay.write_compiled, grafted) if grafted else ""
    if problem:
        raise Refused(f"it cannot be compiled: {problem}")
    return folder


def kernels(assignment: Assignment, task: str | None) -> Path:
    """A new folder: kernels of the library that this user has compiled so far.

    They are what Numba's cache has, and Mojo's. Those stay this user's own: a worker
    reads the folder and cannot write to it, and what a worker compiles, nobody else
    reads.

    Args:
        task: of a student's worker, which has the kernels that nothing of the student's
            is compiled into, and whose sources it sees as well; None: all kernels.
    """
    folder = new_folder("kernels")
    for path in (*_numba_kernels(assignment, task), *_mojo_kernels(assignment, task)):
        with suppress(FileNotFoundError):  # damaged, and just deleted
            _link(path, folder / path.name)
    return folder


def _numba_kernels(assignment: Assignment, task: str | None) -> Iterator[Path]:
    if not any("cpu" in each.devices for each in assignment.tasks):
        return
    from fast_ops import launch  # loads Numba, which takes half a second

    cache = Path(launch.GIVEN) if launch.GIVEN else launch.cache_folder()
    solved = {file.module for file in assignment.files if task}
    for source in (catalog.LIBRARY / "fast_ops").glob("*.py") if cache else ():
        if solved.isdisjoint(launch.sources(f"fast_ops.{source.stem}")):
            yield from cache.glob(f"{source.stem}.*.nb[ic]")


def _mojo_kernels(assignment: Assignment, task: str | None) -> Iterator[Path]:
    """What is made of an assignment's Mojo files, which is compiled here if need be.

    All workers of all submissions copy tensors with kernels of one of them, and a
    compilation takes seconds. Of a file that a task changes nothing in, a student's
    worker has the library's text (`mojo_text.as_checked`).
    """
    files = [file for file in assignment.files if file.is_mojo]
    if not files:
        return
    from mojo_ops import build

    tasks = (task, *assignment.task(task).uses) if task else ()
    solved = {
        Path(file.path).stem
        for file in files
        if any(functions_of(file.regions(), name) for name in tasks)
    }
    for name in (Path(file.path).stem for file in files):
        if solved.isdisjoint(build.sources(name)):
            with suppress(ImportError, OSError, RuntimeError):  # a worker will tell
                yield build.built(name)


def _link(path: Path, target: Path) -> None:
    """Let a file appear at another place, without a copy where that can be."""
    try:
        os.link(path, target)
    except OSError:  # on another disk, or another user's
        shutil.copy2(path, target)


def _replace(path: Path, data: bytes) -> None:
    """Put a new file where one was, of which the compiled form is no longer right."""
    path.unlink(missing_ok=True)  # other trees may have a link to it
    path.write_bytes(data)
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


def _library(assignment: Assignment) -> Path:
    """A copy of the library, with an assignment's calls and its files."""
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
        _write(folder / place(assignment, file), file.source.read_text())
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
    path.write_text(text, "utf-8")


def _readable(folder: Path) -> Path:
    """Compile a tree, once for all workers, and let any user read it."""
    compileall.compile_dir(folder, quiet=2)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
