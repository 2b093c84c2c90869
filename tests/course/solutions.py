"""Workspaces for tests: untouched ones, the reference's, and wrong ones.

With this file a test of the course takes a file of `wrong/aN/` (`WRONG`), which says in
its first line which task it is for, and gets a workspace with its mistake in the place
of the library's code (`with_mistake`, `write_files`). The file holds functions, or two
texts, RIGHT and WRONG: a few lines of a long function, and what takes their place.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assignments import catalog, mojo_text, overlay, regions, workspace
from assignments.catalog import Assignment, File, Task
from assignments.grading.examine import Result
from assignments.runner import Job, Runners

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Wrong:
    """A wrong solution.

    Attributes:
        task: which it is for, "a3.1".
        path: the file that it changes.
        what: the mistake.
        text: the functions.
    """

    name: str
    task: str
    path: str
    what: str
    text: str

    @property
    def assignment(self) -> Assignment:
        return catalog.load(self.task.partition(".")[0])

    @property
    def device(self) -> str:
        """Where the mistake shows: the file's device, if that is one of the task's."""
        devices = self.assignment.task(self.task).devices
        folders = {"cuda_ops": "cuda", "fast_ops": "cpu"}
        here = folders.get(self.path.partition("/")[0], devices[0])
        return here if here in devices else devices[0]


def _read(path: Path) -> Wrong:
    text = path.read_text()
    first = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    place, _, what = first.partition(": ")
    task, _, file = place.partition(" in ")
    return Wrong(f"{path.parent.name}-{path.stem}", task, file, what, text)


WRONG = [_read(path) for path in sorted(HERE.glob("wrong/*/*.py"))]


def write_files(assignment: Assignment, folder: Path, texts: dict[str, str]) -> None:
    """A workspace with these texts as its files."""
    workspace.create(assignment, folder)
    for path, text in texts.items():
        (folder / path).write_text(text)


def reference(assignment: Assignment) -> dict[str, str]:
    """The library's files, without markers."""
    return dict(_reference(assignment.id))


@cache
def _reference(name: str) -> dict[str, str]:
    return workspace.stripped(catalog.load(name), [])


def with_mistake(wrong: Wrong, right: dict[str, str] | None = None) -> dict[str, str]:
    """The library's files, or others, with the functions of a wrong solution."""
    texts = dict(right or reference(wrong.assignment))
    part = ast.parse(wrong.text)
    edit = _edit(part)
    if edit is not None:
        assert texts[wrong.path].count(edit[0]) == 1, f"{wrong.name}: {edit[0]}"
        texts[wrong.path] = texts[wrong.path].replace(*edit)
        return texts
    tree = ast.parse(texts[wrong.path])
    overlay.graft(tree, part, functions(part))
    texts[wrong.path] = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return texts


def _edit(tree: ast.Module) -> tuple[str, str] | None:
    """RIGHT and WRONG of a file that changes a few lines of a long function."""
    found = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    return (found["RIGHT"], found["WRONG"]) if "RIGHT" in found else None


def functions(tree: ast.Module) -> set[str]:
    """The names of the functions in a file, with those of their classes."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    found.add(f"{node.name}.{part.name}")
    return found


def checked(
    assignment: Assignment, task: Task, file: File, texts: dict[str, str]
) -> str:
    """What runs when a file is checked for a task: others have the library's code."""
    text = texts[file.path]
    if file.is_mojo:
        found = mojo_text.as_checked(file, text, assignment, task.id)
        return re.sub(r"  # line \d+$", "", found, flags=re.MULTILINE)
    kept = assignment.others(task.id)[file.module]
    return _checked_python(text, file.source, frozenset(kept))


@cache
def _checked_python(text: str, source: Path, from_library: frozenset[str]) -> str:
    tree, library = ast.parse(text), source.read_text()
    kept = from_library | regions.twins_in(library, source.name)
    overlay.graft(tree, ast.parse(library), kept)
    body = [n for n in tree.body if ast.unparse(n) != "from minitorch.todo import todo"]
    return ast.dump(ast.Module(body, []))


def run_task(
    runner: Runners,
    task: Task,
    device: str,
    *folders: Path,
    limit: float = 0.0,
    together: bool = False,
) -> list[Result]:
    """The outcomes of a task's checks on one device."""
    places = [str(folder) for folder in folders]
    return runner.run(Job(task.id, device, places, limit, together))


def run_to_failure(
    runner: Runners, task: Task, device: str, folder: Path
) -> list[Result]:
    """The same up to the first check that fails, which saves compiling the others."""
    job = Job(task.id, device, [str(folder)], first_failure=True)
    return runner.run(job)
