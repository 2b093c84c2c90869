"""A miniature assignment, "a99", with which the grader is tested in seconds.

With this file a test can have the assignment (`MINI`), a submission that solves it
(`write_solution`), or any text in the place of the student's file (`write_file`), and
a grader for it (`make_grader`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from assignments.catalog import Assignment, File, Task
from assignments.checks import Check, Speed
from assignments.grading.grade import Grader, Settings
from assignments.grading.sandbox import Limits
from assignments.regions import strip

FOLDER = Path(__file__).parent / "mini"
PATH = "minitorch/simple_ops/mini.py"
LENGTH = 20_000


def _vector(draw, n):
    return {"x": draw_floats(draw, n)}


def draw_floats(draw, n):
    """`n` numbers between -1 and 1."""
    return draw.array((n,), "float32")


def _call(name):
    from grading.mini import calls

    return vars(calls)[name]


def _expect_scale(x):
    return {"out": (2 * x.astype(np.float64) + 1).astype(np.float32)}


def _expect_running(x):
    return {"out": np.cumsum(x.astype(np.float64)).astype(np.float32)}


SIZES = tuple({"n": n} for n in (0, 1, 2, 31, 32, 33, 1025))

CHECKS = (
    Check(
        "a99.1",
        "scale",
        _call("scale"),
        _vector,
        _expect_scale,
        sizes={"n": (0, 40)},
        edges=SIZES,
        examples=5,
    ),
    Check(
        "a99.2",
        "running",
        _call("running"),
        _vector,
        _expect_running,
        sizes={"n": (0, 40)},
        edges=SIZES,
        examples=5,
        tolerance=1e-4,
    ),
    Speed(
        "a99.2",
        "speed of running",
        call=_call("timed_running"),
        rival=_call("timed_running"),
        inputs=_vector,
        expected=_expect_running,
        sizes={"n": LENGTH},
        steps=((0.2, 1.0),),
        work=lambda x: (8.0 * x.size, float(x.size)),
        tolerance=1e-3,
    ),
)


@dataclass(frozen=True)
class Mini(Assignment):
    """An assignment whose folder and checks are those of the tests."""

    timed: bool = True

    @property
    def folder(self) -> Path:
        return FOLDER

    def checks(self, task=None):
        return tuple(
            c
            for c in CHECKS
            if task in (None, c.task) and (self.timed or not isinstance(c, Speed))
        )


MINI = Mini(
    "a99",
    "a99_mini",
    "Miniature",
    (
        Task("a99.1", "scale", 4.0, seconds=6.0),
        Task("a99.2", "running sums", 6.0, seconds=6.0),
    ),
    (File(PATH, "minitorch.simple_ops.mini", FOLDER / "mini.py"),),
)

UNTIMED = replace(MINI, timed=False)

SOLUTION = strip((FOLDER / "mini.py").read_text(), PATH, ())
LIMITS = Limits(memory=1 << 30, disk_bytes=16 << 20, file_bytes=8 << 20, threads=2)


def write_file(folder: Path, text: str) -> Path:
    """A submission with this text as the student's file."""
    path = folder / PATH
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return folder


def write_solution(folder: Path, note: str = "") -> Path:
    """A submission that deserves all points."""
    return write_file(folder, f"{SOLUTION}# {note}\n")


def make_grader(
    mode: str = "",
    read_code: bool = True,
    call_seconds: float = 2.0,
    assignment: Assignment = MINI,
) -> Grader:
    """A grader for the miniature assignment."""
    settings = Settings(
        secret="a secret of the tests",
        mode=mode,
        limits=LIMITS,
        start_seconds=3.0,
        call_seconds=call_seconds,
        read_code=read_code,
    )
    return Grader(assignment, settings)
