"""The program as it is installed grades: reference, untouched work, what is missing."""

from __future__ import annotations

import json
import os
import re
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

import pytest
from grading import installed
from grading.hand_ins import FOREVER, SUM, Course

from assignments import catalog, workspace
from assignments.checks import Speed
from assignments.grading import batch, sandbox
from assignments.grading.launch import LIBC, PR_SET_CHILD_SUBREAPER, descendants
from assignments.grading.release import build_wheel, copy_project
from assignments.grading.timing import NOISY
from fast_ops.launch import cache_folder

pytestmark = pytest.mark.timeout(1800)  # compilers on a busy machine
EXTRA = {"cuda": "numba_cuda", "mojo": "mojo.run"}  # a module of each extra


def extras(name: str) -> set[str]:
    """The devices of an assignment that an extra installs."""
    devices = {d for task in catalog.load(name).tasks for d in task.devices}
    return devices & EXTRA.keys()


PLACES = [
    pytest.param(
        name, marks=[pytest.mark.extras, pytest.mark.slow] if extras(name) else []
    )
    for name in catalog.ids()
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment."""
    folder = tmp_path_factory.mktemp("installed")
    copy_project(folder / "source")
    wheel = build_wheel(folder / "source", folder)
    return installed.make(folder / "environment", wheel)


def grade(programs: Path, command: str, name: str, path: Path, out: Path, *more: str):
    """Call the program as a teacher does, on a machine that may be busy."""
    words = [programs / "minitorch", command, name, path, "--out", out]
    options = ["--seed", "a secret of the tests", "--patience", "20"]
    kernels = cache_folder() or ""  # of this checkout, whose text is the same
    return installed.run([*words, *options, *more], MINITORCH_KERNELS=kernels)


def write(name: str, tasks: list[str], folder: Path) -> Path:
    """A submission in which all is solved but `tasks`."""
    for path, text in workspace.stripped(catalog.load(name), tasks).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def needs_extra(name: str) -> None:
    for device in sorted(extras(name)):
        module = EXTRA[device]
        if not (find_spec(module.split(".")[0]) and find_spec(module)):
            pytest.skip(f"needs the extra for {device!r}")


@pytest.mark.parametrize("extra", ["cuda12", "cuda13"])
def test_workers_see_what_an_extra_installs(extra):
    settings = ConfigParser()
    settings.read(catalog.LIBRARY / "setup.cfg")
    lines = settings["options.extras_require"][extra].split("\n")
    names = {re.split(r"[\[ ]", line)[0].replace("-", "_") for line in lines if line}
    assert "numba_cuda" in names
    assert names <= {*sandbox.PACKAGES, *sandbox.CUDA_PACKAGES}


@pytest.mark.parametrize("name", PLACES)
def test_the_reference_earns_all_and_an_untouched_workspace_nothing(
    name, programs, tmp_path
):
    """In one process: each takes seconds to start, and a look at the machine."""
    needs_extra(name)
    assignment = catalog.load(name)
    write(name, [], tmp_path / "s" / "reference")
    workspace.create(assignment, tmp_path / "s" / "untouched")
    ended = grade(programs, "grade-all", name, tmp_path / "s", tmp_path / "o")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    reference, untouched = (
        json.loads((tmp_path / "o" / each / "results.json").read_text())
        for each in ("reference", "untouched")
    )
    earns_all(assignment, reference)
    earns_nothing(untouched)


def earns_all(assignment, values):
    # How fast a machine is in these minutes is not asked; that it was timed is.
    timed = {c.task for c in assignment.checks() if isinstance(c, Speed)}
    # Answers to questions come behind the tasks, and are a teacher's to judge.
    judged = values["tests"][: len(assignment.tasks)]
    for test in judged:
        task = assignment.task(test["number"])
        if task.id in timed:
            said = "times as fast as the reference", "needs a GPU", NOISY
            assert any(words in test["output"] for words in said), test
        else:
            assert test["status"] == "passed", test
            assert test["score"] == task.points, test
            assert test["max_score"] == (0 if task.bonus else task.points), test
    questions = [test["number"] for test in values["tests"][len(judged) :]]
    assert questions == [f"answer {i + 1}" for i in range(len(assignment.questions))]


def earns_nothing(values):
    assert values["score"] == 0
    assert {t["status"] for t in values["tests"] if "status" in t} == {"failed"}


AUTODIFF, SCALAR, XOR = "minitorch/autodiff.py", "minitorch/scalar.py", "xor.py"
LISTS, LOSS = "above, below = list(values), list(values)", "loss = mean_loss("
IN_A_FUNCTION = [  # the file, what stands there, what comes before it, what it costs
    (AUTODIFF, LISTS, f"{FOREVER}pass", {"a1.1": "0"}),
    (AUTODIFF, "if edge is None:", f"{FOREVER}print('x' * 9999)", {"a1.3": "0"}),
    (AUTODIFF, LISTS, f"above = [0.0]\n    {FOREVER}above += above", {"a1.1": "0"}),
    (AUTODIFF, "order: list", "topological_sort(roots)", {"a1.4": "0"}),
    (SCALAR, "return d_out * y, d_out * x", "d_out = -d_out", {"a1.2": "5.45"}),
    (XOR, "return loss.data", "del loss", {"a1.5": "0"}),
    (XOR, LOSS, ")", {"a1.5": "0"}),
    # Refused, and never run.
    (XOR, LOSS, "import os\n    os._exit(0)", {"a1.5": "0"}),
    (AUTODIFF, LISTS, "import os\n    os.memfd_create('x')", {"a1.1": "0"}),
    (AUTODIFF, LISTS, "import os\n    os.fork(), os.setsid()", {"a1.1": "0"}),
]
AT_THE_END = [
    (AUTODIFF, f"x = {SUM}\n", {"a1.1": "0", "a1.3": "0", "a1.4": "0"}),
    (AUTODIFF, "import ctypes\n", {"a1.1": "0", "a1.3": "0", "a1.4": "0"}),
    (XOR, "more = [0.0]\nwhile True:\n    more += more\n", {"a1.5": "0"}),
]


def course() -> Course:
    """The shortest assignment, with thirteen mistakes, of each two."""
    right = workspace.stripped(catalog.load("a1"), [])
    broken = [(path, right[path] + line, lost) for path, line, lost in AT_THE_END]
    for path, place, line, lost in IN_A_FUNCTION:
        head, _, tail = right[path].partition(place)
        margin = head.rpartition("\n")[2]
        text = f"{head}{line}\n{margin}{place}{tail}"
        broken.append((path, text, lost))
    return Course(catalog.load("a1"), right, 2 * broken)


EACH_KIND = [*range(13), 26, 27, 28, 50, 51, *range(90, 94)]
HUNDRED = range(100) if "MINITORCH_HUNDRED" in os.environ else EACH_KIND


@pytest.mark.slow
def test_a_hundred_of_which_thirty_are_broken(programs, tmp_path):
    """Each kind once, or all, in ten minutes, if MINITORCH_HUNDRED is set."""
    if sandbox.best_mode() not in sandbox.STRONG:
        pytest.skip("no sandbox here keeps submissions from doing harm")
    (tmp_path / "s").mkdir()
    expected = dict(course().hand_in(tmp_path / "s", n) for n in HUNDRED)
    # Whoever outlives the grader becomes a child of this process.
    assert LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    before = set(descendants(os.getpid()))
    places = "a1", tmp_path / "s", tmp_path / "o"
    options = "--jobs", "2", "--patience", "0.2"  # loops without end take it all
    ended = grade(programs, "grade-all", *places, *options)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert batch.FAILURE not in ended.stdout
    assert course().graded(tmp_path / "o") == expected
    assert set(descendants(os.getpid())) <= before
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "name, packages",
    [
        ("a0", ["hypothesis"]),
        ("a3", ["numba"]),
        ("a4", ["numba_cuda"]),
        ("a9", ["mojo", "modular"]),
    ],
)
def test_a_missing_package_is_an_error(name, packages, programs, tmp_path):
    """Not points: neither none for honest work, nor "0 of 0"."""
    folder = programs.parent / "packages"
    hidden = [folder / p for p in packages if (folder / p).exists()]
    try:
        for path in hidden:
            path.rename(path.with_name(f"hidden-{path.name}"))
        submission = write(name, [], tmp_path / "s")
        ended = grade(programs, "grade", name, submission, tmp_path / "o")
    finally:
        for path in hidden:
            path.with_name(f"hidden-{path.name}").rename(path)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert f"{packages[0]} is not installed" in said and "Traceback" not in said
    assert "pip install" in said and not (tmp_path / "o").exists()
