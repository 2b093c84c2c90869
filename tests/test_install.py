"""How the package is installed: what is found from where, and what an extra brings."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

import minitorch
from minitorch.cli import course

ROOT = Path(minitorch.__file__).parents[1]
PACKAGES = ("minitorch", "fast_ops", "cuda_ops", "mojo_ops", "assignments")

BUILD = "import sys, setuptools.build_meta as b; b.build_{}(sys.argv[1])"

# -S: what is installed in the environment of these tests is not there.
FIND = """
import importlib.util, site, sys
site.addsitedir(sys.argv[1])
for name in sys.argv[2:]:
    print(importlib.util.find_spec(name).origin)
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build needs, in a folder called minitorch."""
    target = tmp_path_factory.mktemp("parent") / "minitorch"
    target.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    return target


@pytest.mark.parametrize("kind", ["editable", "wheel"])
def test_beside_a_clone_called_minitorch(
    kind: str, clone: Path, tmp_path: Path
) -> None:
    """`import minitorch` finds the package, not the clone as a package without code."""
    pytest.importorskip("setuptools", reason="builds the package")
    built = tmp_path / "built"
    built.mkdir()
    command = [sys.executable, "-c", BUILD.format(kind), str(built)]
    run = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    where = clone if kind == "editable" else tmp_path / "site"
    names = (*PACKAGES, "mojo_ops.gpu")
    run = subprocess.run(
        [sys.executable, "-S", "-c", FIND, str(tmp_path / "site"), *names],
        cwd=clone.parent, env={}, capture_output=True, text=True,
    )  # fmt: skip
    found = run.stdout.split()
    expected = [where / name.replace(".", "/") / "__init__.py" for name in names]
    assert found == [str(path) for path in expected], run.stderr
    assert (where / "minitorch/data/text/alice.txt").is_file()


def requirements(part: str) -> list[str]:
    setup = ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    section = "options" if part == "install_requires" else "options.extras_require"
    lines = setup[section][part].split("\n")
    return [re.split(r"[ ;]", line)[0] for line in lines if line.strip()]


def test_the_extra_of_the_course_is_what_the_course_imports() -> None:
    imported = set()
    for file in (ROOT / "assignments").rglob("*.py"):
        if "grading" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((node.module or "").partition(".")[0])
    ours = {*PACKAGES, "course"}  # course: what a workspace has
    devices = {"mojo"}  # extras of their own
    others = imported - set(sys.stdlib_module_names) - ours - devices
    course_only = others - {*requirements("install_requires")}
    assert course_only - {"tomllib"} == set(requirements("course"))
    assert "minitorch[course]" in requirements("test")


def test_what_the_course_lacks_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from minitorch.cli.app import app

    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(app, ["start", "a1"]).exit_code == 0
    monkeypatch.setattr(course, "_missing", lambda: "torch and hypothesis")
    result = runner.invoke(app, ["test", "--in", "a1"])
    assert result.exit_code == 1
    assert "needs torch and hypothesis" in result.output
    assert "pip install -e '.[course]'" in result.output
    readme = (ROOT / "README.md").read_text().partition("## The course")[2]
    assert "pip install -e '.[course]'" in readme
