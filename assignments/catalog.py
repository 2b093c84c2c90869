"""The assignments: their tasks, points and files.

With this file one can look up an assignment (`load("a3")`, `load_all()`), its tasks and
what they are checked with (`Assignment.checks`), and the points that a task earns
on a device (`earned`) and on all (`points`). All of it stands in
`assignments/aN_slug/assignment.toml`:

    title = "Parallel CPU"
    hours = 8                                   # an estimate
    before = "a2 (strides); what a thread is"   # what it builds on
    able = "write loops ..."                    # what one can do afterwards
    files = ["fast_ops/elementwise.py", ...]    # of the library, or of the folder
    allows = ["numpy.stack", ...]               # beside `grading/allowed.py`

    [[task]]
    id = "a3.1"
    title = "Parallel map and zip"
    points = 4                                  # shared by the devices
    devices = ["cpu"]                           # "python": uses no backend
    hint = "..."                                # shown when a check fails
    hints = ["...", "..."]                      # `minitorch hint` opens one by one
    xray = ["transpose_padded"]                 # what `minitorch xray` can show
    todo = "..."                                # stands in the place of the solution
    [task.regions]
    zip_flat = "..."                            # the same for one function, or for
                                                # the methods of this name

    [[question]]                                # of the handout: see `answers.py`
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assignments.regions import Region, functions_of, parse

if TYPE_CHECKING:
    from assignments.checks import AnyCheck

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent
LIBRARY = FOLDER.parent


@dataclass(frozen=True)
class Task:
    """A part of an assignment that is graded by itself.

    Attributes:
        id: "a3.1".
        title: in a few words.
        points: for all devices together.
        devices: where its checks run; "python" where no backend is involved.
        seconds: how long its checks may take on one device.
        hint: what to look at when a check fails.
        hints: a ladder: a question, a direction, and nearly the idea.
        todo: what to write, for the place where the solution was.
        regions: the same for single functions, by their names; or for all methods of
            a name; or for one file's, as "cuda_ops/linear.py bias_rows".
        partial: whether single checks earn their part of the points.
        bonus: whether its points come on top of the assignment's.
        uses: tasks whose solutions this one is about (it may have no region itself).
        xray: kernels of the task that `minitorch xray` can launch.
    """

    id: str
    title: str
    points: float
    devices: tuple[str, ...] = ("python",)
    seconds: float = 60.0
    hint: str = ""
    hints: tuple[str, ...] = ()
    todo: str = ""
    regions: dict[str, str] = field(default_factory=dict)
    partial: bool = False
    bonus: bool = False
    uses: tuple[str, ...] = ()
    xray: tuple[str, ...] = ()

    @property
    def assignment(self) -> str:
        """ "a3" """
        return self.id.partition(".")[0]

    @property
    def marker(self) -> str:
        """The task's mark in pytest: "task3_1"."""
        return f"task{self.id[1:].replace('.', '_')}"

    def text(self, function: str, path: str) -> str:
        """What to write in the place of the region in `function` of a file."""
        each = self.regions.get(function.rpartition(".")[2], self.todo or self.title)
        found = self.regions.get(function, each)
        return self.regions.get(f"{path} {function}", found)


@dataclass(frozen=True)
class File:
    """A file that an assignment takes solutions out of.

    Attributes:
        path: where it lies in a workspace, "fast_ops/matmul.py".
        module: its name as a module, "fast_ops.matmul"; "" if it is no Python.
        source: the library's file.
    """

    path: str
    module: str
    source: Path

    @property
    def is_mojo(self) -> bool:
        return self.path.endswith(".mojo")

    def regions(self) -> list[Region]:
        """The marked regions of the library's file."""
        if not (self.module or self.is_mojo):
            return []
        return list(_parsed(self.source.read_text(), self.path))


@lru_cache(maxsize=128)
def _parsed(text: str, name: str) -> tuple[Region, ...]:
    return tuple(parse(text, name))


@dataclass(frozen=True)
class Question:
    """A question at the end of a handout: its points, and what earns them."""

    points: float
    rubric: str


@dataclass(frozen=True)
class Assignment:
    """One assignment, with everything that `assignment.toml` says about it."""

    id: str
    slug: str
    title: str
    tasks: tuple[Task, ...]
    files: tuple[File, ...]
    hours: float = 0.0
    before: str = ""
    able: str = ""
    questions: tuple[Question, ...] = ()
    allows: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return FOLDER / self.slug

    @property
    def points(self) -> float:
        """What can be earned, without the bonus."""
        return sum(task.points for task in self.tasks if not task.bonus)

    def task(self, name: str) -> Task:
        """The task "a3.1" (or "3.1")."""
        for task in self.tasks:
            if name in (task.id, task.id[1:]):
                return task
        names = ", ".join(task.id for task in self.tasks)
        raise ValueError(f"{self.id}: there is no task {name!r}; the tasks are {names}")

    def checks(self, task: str | None = None) -> tuple[AnyCheck, ...]:
        """What is checked, of one task or of all."""
        module = importlib.import_module(f"assignments.{self.slug}.checks")
        found: tuple[AnyCheck, ...] = module.CHECKS
        return tuple(c for c in found if task is None or c.task == task)

    def others(self, task: str) -> dict[str, set[str]]:
        """For each module, the functions that are not looked at in `task`.

        They belong to other tasks, which `task` does not use; the library's take their
        place.
        """
        looked_at = {task, *self.task(task).uses}
        kept = {}
        for file in self.files:
            if not file.module:
                continue
            regions = file.regions()
            own = [functions_of(regions, name) for name in looked_at]
            names = [functions_of(regions, t.id) for t in self.tasks]
            kept[file.module] = set().union(*names) - set().union(*own)
        return kept


def earned(points: float, passed: Sequence[float], partial: bool) -> float:
    """The points for the checks of one task on one device.

    Args:
        points: what can be earned there.
        passed: for each check, 1 if it passed, 0 if not, and what is between for speed.
        partial: whether single checks earn their part.
    """
    if not passed:
        return 0.0
    if partial:
        return points * sum(passed) / len(passed)
    if any(share == 0 for share in passed):
        return 0.0
    return points * min(passed)


def points(task: Task, parts: Mapping[str, float | None]) -> float:
    """What a task has earned: equal parts of its points for the devices that count.

    Args:
        parts: for each device, the part of its points that was earned there, 0 to 1;
            None where nothing could run, which then does not count.
    """
    counted = [parts.get(device, 0.0) for device in task.devices]
    ran = [part for part in counted if part is not None]
    return task.points * sum(ran) / len(ran) if ran else 0.0


def possible(task: Task, parts: Mapping[str, float | None]) -> float:
    """What could have been earned: nothing, where no device could run."""
    known = {name: parts.get(name, 0.0) for name in task.devices}
    return points(task, {n: None if p is None else 1.0 for n, p in known.items()})


def ids() -> tuple[str, ...]:
    """The names of all assignments, in order: "a0", "a1", ..."""
    return tuple(folder.name.partition("_")[0] for folder in _folders())


def _folders() -> list[Path]:
    folders = [path.parent for path in FOLDER.glob("a*_*/assignment.toml")]
    return sorted(folders, key=lambda folder: order(folder.name))


def order(name: str) -> tuple[int, bool]:
    """By which assignments are in order: (10, True) of "a10" or "a10_language_models".

    A warm-up comes before what it is for: (4, False) of "a4w".
    """
    number = name.partition("_")[0][1:]
    return int(number.removesuffix("w")), not number.endswith("w")


def load_all() -> tuple[Assignment, ...]:
    """All assignments, in order."""
    return tuple(load(name) for name in ids())


@cache
def load(name: str) -> Assignment:
    """The assignment called "a3" or by its folder's name.

    Raises:
        ValueError: there is no such assignment, or its file says something unknown.
    """
    for folder in _folders():
        if name in (folder.name, folder.name.partition("_")[0]):
            return _read(folder)
    raise ValueError(f"there is no assignment {name!r}; there are {', '.join(ids())}")


def _read(folder: Path) -> Assignment:
    values = tomllib.loads((folder / "assignment.toml").read_text())
    name = folder.name.partition("_")[0]
    return Assignment(
        name,
        folder.name,
        values["title"],
        tuple(_task(name, entry) for entry in values["task"]),
        tuple(_file(folder, path) for path in values["files"]),
        **{key: values[key] for key in ("hours", "before", "able") if key in values},
        questions=tuple(Question(**entry) for entry in values.get("question", ())),
        allows=tuple(values.get("allows", ())),
    )


def _task(assignment: str, values: dict[str, Any]) -> Task:
    unknown = set(values) - set(Task.__dataclass_fields__)
    if unknown or not values["id"].startswith(f"{assignment}."):
        raise ValueError(f"{assignment}: task {values['id']} has unknown {unknown}")
    lists = {"devices": ("python",), "uses": (), "hints": (), "xray": ()}
    tuples = {name: tuple(values.get(name, other)) for name, other in lists.items()}
    return Task(**{**values, **tuples})


def _file(folder: Path, path: str) -> File:
    own = folder / path
    source, module = (
        (own, f"assignments.{folder.name}.{Path(path).stem}")
        if own.exists()
        else (LIBRARY / path, path.removesuffix(".py").replace("/", "."))
    )
    return File(path, module if path.endswith(".py") else "", source)
