"""What a course hands out for an assignment, and what it keeps.

With this file one can write (`release`) into a folder

    a3.zip                    the workspace for students
    minitorch-...whl          a student edition of the library: the solutions of this
                              and of all later assignments are taken out
    a3-autograder.zip         for Gradescope; it has the solutions and the secret seed

It needs the library's source, where `setup.cfg` is.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path

import minitorch
from assignments import catalog, workspace
from assignments.catalog import Assignment
from assignments.grading import reading
from assignments.regions import Texts, strip
from minitorch.data import atomic_write

PROJECT = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
PACKAGES = ("minitorch", "fast_ops", "cuda_ops", "mojo_ops", "assignments")
OTHERS = re.compile(r"(# (?:BEGIN|END)) (SOLUTION|TWIN) (a\d+w?\.\d+)")
KEPT = re.compile(r"(# (?:BEGIN|END)) KEPT (SOLUTION|TWIN) (a\d+w?\.\d+)")
# Zip files have no time zone and begin in 1980; the same release has the same bytes.
TIME = (1980, 1, 1, 0, 0, 0)

# What the devices of an assignment need, beside what all of them do: an extra, and
# packages of the system.
EXTRAS = {"cuda": "cuda13", "mojo": "mojo"}
SYSTEM = ("python3", "python3-venv", "bubblewrap", "libgomp1")
SYSTEM_FOR = {"mojo": ("gcc", "libc6-dev")}  # its compiler calls a linker

# Both scripts can be tried under another root than "/", as DESTDIR does it for make.
SETUP = """#!/usr/bin/env bash
# Gradescope runs this once, when the autograder's image is built.
set -euo pipefail
apt-get update
apt-get install -y --no-install-recommends {system}
cd "${{ROOT:-}}/autograder/source"
python3 -m venv "${{ROOT:-}}/opt/minitorch"
programs="${{ROOT:-}}/opt/minitorch/bin"
"$programs/pip" install --quiet --upgrade pip
"$programs/pip" install --quiet torch --index-url "{torch_index}"
"$programs/pip" install --quiet "$(echo minitorch-*.whl)[{extras}]"
# Kernels that are compiled now, no submission waits for.
"$programs/python" -m assignments.grading.batch {assignment}
"""

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

RUN = """#!/usr/bin/env bash
# Gradescope runs this for each submission.
set -euo pipefail
# A worker is another user, and has no business with solutions, seed or results.
cd "${{ROOT:-}}/autograder"
chmod 700 source results
exec "${{ROOT:-}}/opt/minitorch/bin/minitorch" grade {assignment} submission \\
    --out results --secret source/secret
"""


def release(assignment: Assignment, out: Path) -> list[Path]:
    """Write all that an assignment hands out; the files.

    Raises:
        RuntimeError: the library's source is not here, or the wheel cannot be built.
    """
    missing = [name for name in PROJECT[:2] if not (catalog.LIBRARY / name).exists()]
    if missing:
        raise RuntimeError(
            f"release: {', '.join(missing)} is not beside the library in "
            f"{catalog.LIBRARY}; a release is made from a checkout of the source"
        )
    out.mkdir(parents=True, exist_ok=True)
    return [
        write_workspace(assignment, out / f"{assignment.id}.zip"),
        write_student_edition(assignment, out),
        write_autograder(assignment, out / f"{assignment.id}-autograder.zip"),
    ]


def write_workspace(assignment: Assignment, target: Path) -> Path:
    """The zip for students: what `minitorch start` makes."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / assignment.id
        workspace.create(assignment, made)
        files = {
            f"{assignment.id}/{path.relative_to(made).as_posix()}": path.read_bytes()
            for path in sorted(made.rglob("*"))
            if path.is_file()
        }
    _write_zip(target, files)
    return target


def write_student_edition(assignment: Assignment, out: Path) -> Path:
    """The wheel without the solutions of this assignment and of later ones."""
    order = catalog.ids()
    removed = order[order.index(assignment.id) :]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        copy_project(source)
        for name in removed:
            remove_solutions(catalog.load(name), source)
        _mark_edition(source / "setup.cfg", f"without.{assignment.id}")
        return build_wheel(source, out)


def remove_solutions(assignment: Assignment, root: Path) -> None:
    """Take an assignment's solutions out of a copy of the library.

    The markers of other assignments stay: `minitorch start` needs them. What the
    solutions use is kept, without them, so that `minitorch test` refuses what the
    grader refuses.
    """
    kept = root / "assignments" / assignment.slug / reading.USES
    kept.write_text(reading.kept_uses(assignment))

    tasks = [task.id for task in assignment.tasks]
    own = {root / f.source.relative_to(catalog.LIBRARY) for f in assignment.files}
    for path in own.union(*((root / name).rglob("*.py") for name in PACKAGES)):
        text, place = path.read_text("utf-8"), path.relative_to(root).as_posix()

        def said(task: str, function: str, place: str = place) -> str:
            return assignment.task(task).text(function, place)

        if path in own or f"# BEGIN TWIN {assignment.id}." in text:
            path.write_text(without_solutions(text, path.name, tasks, said))


def without_solutions(
    text: str, name: str, tasks: Collection[str], texts: Texts | None = None
) -> str:
    """A file's text without the solutions of `tasks` (see `regions.strip`).

    The markers of other tasks stay: `minitorch start` needs them.
    """
    hidden = OTHERS.sub(
        lambda m: m[0] if m[3] in tasks else f"{m[1]} KEPT {m[2]} {m[3]}", text
    )
    return KEPT.sub(r"\1 \2 \3", strip(hidden, name, tasks, texts))


def write_autograder(assignment: Assignment, target: Path) -> Path:
    """The zip for Gradescope: the whole library, the scripts and a new secret seed."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        copy_project(source)
        wheel = build_wheel(source, Path(folder))
        files = {
            "setup.sh": setup(assignment).encode(),
            "run_autograder": RUN.format(assignment=assignment.id).encode(),
            "secret": f"{secrets.token_hex(32)}\n".encode(),
            wheel.name: wheel.read_bytes(),
        }
    _write_zip(target, files, programs=("setup.sh", "run_autograder"))
    target.chmod(0o600)
    return target


def setup(assignment: Assignment) -> str:
    """The script that makes the environment, with what the devices need."""
    devices = sorted({device for task in assignment.tasks for device in task.devices})
    extras = ["test", *(EXTRAS[name] for name in devices if name in EXTRAS)]
    system = [*SYSTEM, *(p for name in devices for p in SYSTEM_FOR.get(name, ()))]
    return SETUP.format(
        system=" ".join(system), torch_index=TORCH_INDEX, extras=",".join(extras),
        assignment=assignment.id,
    )  # fmt: skip


def copy_project(target: Path) -> None:
    """Copy what the library is built from."""
    target.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "build", "_build", "*.nbi", "*.nbc")
    for name in PROJECT:
        if (catalog.LIBRARY / name).exists():
            shutil.copy2(catalog.LIBRARY / name, target / name)
    for name in PACKAGES:
        if (catalog.LIBRARY / name).is_dir():
            shutil.copytree(catalog.LIBRARY / name, target / name, ignore=ignored)


def _mark_edition(path: Path, label: str) -> None:
    """Let the version say that it is a student edition, "0.1.0+without.a3"."""
    lines = path.read_text("utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("version"))
    lines[at] = f"version = {minitorch.__version__}+{label}"
    path.write_text("\n".join(lines) + "\n", "utf-8")


def build_wheel(source: Path, out: Path) -> Path:
    """Build a wheel with the setuptools that is installed; needs no network."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--wheel-dir", folder, str(source)]
        run = subprocess.run(command, capture_output=True, text=True)
        wheels = sorted(Path(folder).glob("*.whl"))
        if run.returncode or not wheels:
            last = (run.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"release: pip cannot build the wheel: {last}")
        target = out / wheels[0].name
        with atomic_write(target) as file:
            file.write(wheels[0].read_bytes())
    return target


def _write_zip(
    target: Path, files: dict[str, bytes], programs: Iterable[str] = ()
) -> None:
    """Write a zip whose bytes depend on its contents alone."""
    with atomic_write(target) as file, zipfile.ZipFile(file, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name in programs else 0o644) << 16
            archive.writestr(entry, data)
