"""Kernels on disk: damaged files, full disks, and folders that cannot be written to."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from fast_ops import launch
from helpers import DAMAGES, damaged
from minitorch.cli import checks

ROOT = Path(checks.__file__).parents[2]


def loop(a: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] + a[i]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def hits() -> int:
    """How many of two signatures of a kernel were found on the disk."""
    kernel = launch.compile_kernel(loop, ("a test",))
    for dtype in (np.float32, np.float64):
        out = np.zeros(3, dtype)
        kernel(np.ones(3, dtype), out)
        assert out.tolist() == [2.0, 2.0, 2.0]
    return sum(kernel.stats.cache_hits.values())


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_files_are_made_again(
    how: str, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert hits() == 0 and hits() == 2
    (index,), codes = cache.rglob("*.nbi"), sorted(cache.rglob("*.nbc"))
    assert len(codes) == 2 and capfd.readouterr().err == ""
    for file, left in ((codes[0], 1), (codes[1], 1), (index, 0)):
        file.write_bytes(damaged(file.read_bytes(), how))
        assert hits() == left
        said = capfd.readouterr().err
        assert said == f"fast_ops: {file} is damaged; it is made again\n"
        assert hits() == 2 and capfd.readouterr().err == ""


def test_code_that_belongs_to_another_signature_is_not_run(cache: Path) -> None:
    """As where a process was killed between writing the index and the code."""
    hits()
    one, other = sorted(cache.rglob("*.nbc"))
    shutil.copy(one, other)
    assert hits() == 1 and hits() == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no resource limits")
def test_a_full_disk_stops_nothing(cache: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert hits() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert hits() == 0 and hits() == 2


def test_a_folder_that_is_given_is_read(cache: Path, monkeypatch: Any) -> None:
    assert hits() == 0
    monkeypatch.setattr(launch, "GIVEN", str(next(cache.rglob("*.nbi")).parent))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache / "own"))
    assert hits() == 2 and not [*cache.glob("own/*/*.nb[ic]")]
    for path in cache.rglob("*.nbc"):
        path.write_bytes(b"")
    assert hits() == 0 and hits() == 2


# ------------------------------------------------------------- several processes


def wide(a: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = np.sin(a[i]) + np.cos(a[i]) * np.exp(a[i]) / np.tanh(a[i])


def misses(_: int) -> int:
    """How many signatures of a kernel this process had to compile."""
    kernel = launch.compile_kernel(wide, ("a test",))
    for dtype in (np.float32, np.float64):
        kernel(np.ones(3, dtype), np.zeros(3, dtype))
    return sum(kernel.stats.cache_misses.values())


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_one_of_several_processes_compiles(cache: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert sum(pool.map(misses, range(4), chunksize=1)) == 2


@forks
def test_what_cannot_be_compiled_is_left_to_others(cache: Path) -> None:
    def wrong(a: Any) -> None:
        a.no_such_name()

    kernel = launch.compile_kernel(wrong, ("a test",))
    with pytest.raises(numba.TypingError):
        kernel(np.ones(3))
    (path,) = cache.rglob("*.lock")
    with launch.locked(path) as alone:
        assert alone


def adds(a: Any, b: Any, out: Any) -> None:
    out[:] = a[:2] + b[:2]  # an array of its own, which no name tells


@forks
def test_who_compiles_once_more_does_not_wait_for_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, locked = list[bool](), launch.locked

    @contextmanager
    def noted(path: Path) -> Iterator[bool]:
        with locked(path) as alone:
            found.append(alone)
            yield alone

    monkeypatch.setattr(launch, "locked", noted)
    monkeypatch.setattr(launch, "WAIT", 0.1)
    kernel, out = launch.compile_kernel(adds, ("a test",)), np.zeros(2)
    kernel(np.ones(2), np.ones(2), out)
    assert out.tolist() == [2.0, 2.0] and found == [True, True]


@forks
def test_a_process_that_stands_still_is_not_waited_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hits() == 0
    (path,) = cache.rglob("*.lock")
    for file in [*cache.rglob("*.nbi"), *cache.rglob("*.nbc")]:
        file.unlink()
    monkeypatch.setattr(launch, "WAIT", 0.1)
    with launch.locked(path):
        assert hits() == 0 and hits() == 2


# ----------------------------------------------------- a user who may write nowhere

LOOK = """
import json
from minitorch.cli import checks

findings = [checks._kernel_cache(), checks._mojo_cache(), checks._data_cache()]
import minitorch
assert (minitorch.ones(3) + 1).sum().item() == 6
from fast_ops.launch import cache_folder
folder = cache_folder()
print(json.dumps([findings, str(folder), bool(folder and any(folder.glob("*.nbi")))]))
"""


def without_privileges() -> None:
    """Let file permissions stop root, too (CAP_DAC_OVERRIDE is capability 1)."""
    import ctypes

    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.fixture
def packages(tmp_path: Path) -> Any:
    """A copy of the library in folders that cannot be written to."""
    target = tmp_path / "packages"
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("minitorch", "fast_ops", "cuda_ops", "mojo_ops", "assignments"):
        shutil.copytree(ROOT / name, target / name, ignore=leave)
    folders = [target, *(f for f in target.rglob("*") if f.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield target
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.skipif(sys.platform != "linux", reason="root is stopped as Linux does it")
@pytest.mark.parametrize("home", ["writable", "not writable"])
def test_where_caches_go_is_said_truly(
    home: str, packages: Path, tmp_path: Path
) -> None:
    place = tmp_path / "home"
    place.mkdir(0o755 if home == "writable" else 0o555)
    environment = {"HOME": str(place), "PYTHONPATH": str(packages)}
    environment |= {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(
        [sys.executable, "-c", LOOK],
        capture_output=True, text=True, timeout=240, env=environment, cwd=place,
        preexec_fn=without_privileges,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    (numbas, mojo, data), folder, kept = json.loads(found.stdout)
    if home == "writable":
        assert [row[0] for row in (numbas, mojo, data)] == ["ok", "ok", "ok"]
        assert kept and numbas[1] == folder and folder.startswith(str(place))
        assert mojo[1] == str(place / ".cache" / "minitorch" / "mojo")
    else:
        assert [row[0] for row in (numbas, mojo, data)] == ["note", "note", "note"]
        assert "each start compiles anew" in numbas[1] and not kept
        assert str(place) in mojo[1] and "MINITORCH_MOJO_CACHE" in mojo[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_number_inner_functions_apart() -> None:
    """Else two kernels on disk could have inner functions of one name, and whoever
    loads both would run the first one's in both."""
    code = (
        "import os\n"
        "from fast_ops import launch\n"
        "from numba.core.bytecode import FunctionIdentity\n"
        "child = os.fork()\n"
        "child and os.waitpid(child, 0)\n"
        "print(next(FunctionIdentity._unique_ids), flush=True)"
    )
    run = [sys.executable, "-c", code]
    said = [subprocess.check_output(run, text=True, cwd=ROOT) for _ in range(2)]
    numbers = sorted(int(line) for text in said for line in text.split())
    assert len(numbers) == 4
    assert min(np.diff(numbers)) > 1000, numbers
