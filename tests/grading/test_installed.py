"""The program as it is installed grades: reference, untouched work, what is missing."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from grading import installed

from assignments import catalog, workspace
from assignments.checks import Speed
from assignments.grading.release import build_wheel, copy_project
from assignments.grading.timing import NOISY

pytestmark = pytest.mark.timeout(1800)  # compilers on a busy machine
EXTRA = {"cuda": "numba_cuda", "mojo": "mojo.run"}  # a module of each extra
PLACES = [
    pytest.param(a.id, marks=[pytest.mark.extras] * (a.id not in "a0 a1 a2 a3"))
    for a in catalog.load_all()
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment."""
    folder = tmp_path_factory.mktemp("installed")
    copy_project(folder / "source")
    wheel = build_wheel(folder / "source", folder)
    return installed.make(folder / "environment", wheel)


def grade(programs: Path, name: str, submission: Path, out: Path):
    """Call the program as a teacher does, on a machine that may be busy."""
    command = [programs / "minitorch", "grade", name, submission, "--out", out]
    options = ["--seed", "a secret of the tests", "--patience", "20"]
    return installed.run([*command, *options])


def write(name: str, tasks: list[str], folder: Path) -> Path:
    """A submission in which all is solved but `tasks`."""
    for path, text in workspace.stripped(catalog.load(name), tasks).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def needs_extra(name: str) -> None:
    for device in {d for task in catalog.load(name).tasks for d in task.devices}:
        module = EXTRA.get(device, "")
        if module and not (find_spec(module.split(".")[0]) and find_spec(module)):
            pytest.skip(f"needs the extra for {device!r}")


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
def test_the_reference_earns_all_points(name, programs, tmp_path):
    needs_extra(name)
    assignment = catalog.load(name)
    submission = write(name, [], tmp_path / "s")
    ended = grade(programs, name, submission, tmp_path / "o")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    values = json.loads((tmp_path / "o" / "results.json").read_text())
    # How fast a machine is in these minutes is not asked; that it was timed is.
    timed = {c.task for c in assignment.checks() if isinstance(c, Speed)}
    for test in values["tests"]:
        task = assignment.task(test["number"])
        if task.id in timed:
            said = "times as fast as the reference", "needs a GPU", NOISY
            assert any(words in test["output"] for words in said), ended
        else:
            assert test["status"] == "passed", ended
            assert test["score"] == task.points, ended
            assert test["max_score"] == (0 if task.bonus else task.points), ended
    assert len(values["tests"]) == len(assignment.tasks)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
def test_an_untouched_workspace_earns_nothing(name, programs, tmp_path):
    needs_extra(name)
    workspace.create(catalog.load(name), tmp_path / "s")
    ended = grade(programs, name, tmp_path / "s", tmp_path / "o")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    values = json.loads((tmp_path / "o" / "results.json").read_text())
    assert values["score"] == 0
    assert {t["status"] for t in values["tests"] if "status" in t} == {"failed"}


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
        ended = grade(programs, name, write(name, [], tmp_path / "s"), tmp_path / "o")
    finally:
        for path in hidden:
            path.with_name(f"hidden-{path.name}").rename(path)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert f"{packages[0]} is not installed" in said and "Traceback" not in said
    assert "pip install" in said and not (tmp_path / "o").exists()
