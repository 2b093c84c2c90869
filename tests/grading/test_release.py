"""What a course hands out has no solutions; what it keeps can grade."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from assignments import catalog
from assignments.grading import release as releases
from minitorch.cli.grade import default_secret, read_secret

# A line of a3's reference that nothing else has.
SOLVED = "a3"


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    out = tmp_path_factory.mktemp("release")
    return {path.name: path for path in releases.release(catalog.load(SOLVED), out)}


def texts(path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {
            name: archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith((".py", ".mojo", ".sh", ".toml"))
        }


def only(released, suffix):
    (found,) = [path for name, path in released.items() if name.endswith(suffix)]
    return found


def leaks(found: dict[str, str], assignments) -> list[str]:
    """Lines of solutions that stand in the files they were taken out of."""
    left = []
    for file in (file for name in assignments for file in catalog.load(name).files):
        lines = file.source.read_text().splitlines()
        cut = {
            i
            for region in file.regions()
            if region.task.partition(".")[0] in assignments
            for part in region.cuts
            for i in range(part.first, part.last)
        }
        rest = {line.strip() for i, line in enumerate(lines) if i not in cut}
        path = file.source.relative_to(catalog.LIBRARY).as_posix()
        text = next(t for name, t in found.items() if name.endswith((path, file.path)))
        theirs = {line.strip() for line in text.splitlines()}
        for line in ({lines[i].strip() for i in cut} - rest) & theirs:
            if len(line) > 12:
                left.append(f"{path}: {line}")
    return left


def test_the_students_zip(released):
    found = texts(released["a3.zip"])
    assert all(name.startswith("a3/") for name in found)
    text = "\n".join(found.values())
    assert "SOLUTION" not in text and 'todo("a3.1")' in text
    assert leaks(found, {"a3"}) == []


def test_the_student_edition(released, tmp_path):
    wheel = only(released, ".whl")
    assert "without.a3" in wheel.name
    found = texts(wheel)
    order = catalog.ids()
    assert leaks(found, set(order[order.index("a3") :])) == []
    text = "\n".join(found.values())
    kept = [name for name in ("a0", "a1", "a2") if f"SOLUTION {name}." in text]
    assert kept == ["a0", "a1", "a2"]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "import minitorch, pathlib; from assignments import catalog, workspace;"
        "import fast_ops; made = pathlib.Path('made');"
        "workspace.create(catalog.load('a3'), made); print(*made.glob('*.svg'))"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    pictures = [path.name for path in catalog.load("a3").folder.glob("*.svg")]
    assert pictures and sorted(run.stdout.replace("made/", "").split()) == sorted(
        pictures
    )


def test_the_autograder(released):
    path = released["a3-autograder.zip"]
    assert path.stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        modes = {i.filename: i.external_attr >> 16 for i in archive.infolist()}
        run, setup, secret = (
            archive.read(name).decode()
            for name in ("run_autograder", "setup.sh", "secret")
        )
    assert modes["run_autograder"] == modes["setup.sh"] == 0o755
    assert [name for name in names if name.endswith(".whl")]
    assert 'minitorch" grade a3 submission' in run
    assert "bubblewrap" in setup and len(secret.strip()) == 64
    for script in (run, setup):
        check = subprocess.run(["bash", "-n"], input=script, text=True)
        assert check.returncode == 0


def test_the_same_release_has_the_same_bytes(tmp_path):
    assignment = catalog.load("a3")
    files = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for path in files:
        releases.write_workspace(assignment, path)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_secret_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = default_secret()
    assert path.stat().st_mode & 0o777 == 0o600
    first = read_secret(path)
    assert len(first) == 64 and read_secret(default_secret()) == first
    path.write_text("short\n")
    with pytest.raises(ValueError, match="16 or more"):
        read_secret(path)
