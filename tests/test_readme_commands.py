"""Every command of the README runs: without data, without extras, without a network.

The commands are taken from the README, so that the two cannot drift apart. To be quick,
some get more options (`QUICKER`); what installs something is not run again, and what
needs a device or a package that is not here is skipped.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import minitorch
from helpers import DEVICES, SIMULATED, loaded
from mojo_ops import build

ROOT = Path(minitorch.__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()

# Options that make a command quick and leave it what it is.
QUICKER = {
    "minitorch train xor": "--epochs 2 --limit 50",
    "minitorch train points": "--epochs 2 --limit 50",
    "minitorch train mnist": "--epochs 1 --limit 256",
    "minitorch train gpt": "--steps 2 --layers 1 --eval-batches 1 --sample 5",
    "minitorch bench": "optim --seconds 0.001",  # all families take minutes
    "python docs/pruned_mlp.py": "--count 256 --epochs 1 --hidden 64",
    "python docs/quantized_gpt.py": "--steps 9 --preset tiny --tokens 3 --rounds 1",
    "python docs/grpo.py": "--first 2 --steps 1 --every 1",
    "python docs/clean_text.py": "--steps 1 --junk 0.2",
}
SLOW = ("minitorch train mnist",)
# This very run; a name without arguments; what serves until it is stopped.
NAMED = ("pytest", "minitorch release", "minitorch lab", "minitorch serve")

# Sockets that reach no further than this machine's own processes.
NO_NETWORK = """
import socket

class Offline(socket.socket):
    def connect(self, address):
        if self.family != getattr(socket, "AF_UNIX", None):
            raise OSError(101, "Network is unreachable")
        return super().connect(address)

def getaddrinfo(*args, **options):
    raise socket.gaierror(-3, "Temporary failure in name resolution")

socket.socket, socket.getaddrinfo = Offline, getaddrinfo
"""


def commands() -> list[str]:
    """The lines of the README's shell blocks, and those in its text and tables."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.S)).splitlines()
    prose = " ".join(re.sub(r"```.*?```", "", TEXT, flags=re.S).split())
    spoken = re.findall(r"`((?:minitorch|python|pytest|pip) [^`]+)`", prose)
    parts = [part.strip() for line in [*blocks, *spoken] for part in line.split("&&")]
    return list(dict.fromkeys(filter(None, parts)))


INSTALLING = [line for line in commands() if line.startswith("pip ")]
RUNNING = [line for line in commands() if not line.startswith("pip ")]


def test_the_readme_has_commands() -> None:
    assert len(RUNNING) >= 12 and len(INSTALLING) >= 5
    assert all(any(line.startswith(known) for line in RUNNING) for known in QUICKER)


@pytest.mark.parametrize("line", INSTALLING)
def test_what_is_installed_exists(line: str) -> None:
    from configparser import ConfigParser

    setup = ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    (found,) = re.findall(r"^pip install -e '?\.(?:\[(\w[\w,-]*)\])?'?$", line)
    known = setup["options.extras_require"]
    assert all(extra in known for extra in filter(None, found.split(",")))


@pytest.fixture(scope="module")
def offline(tmp_path_factory: Any) -> dict[str, str]:
    """The environment of a machine without data, without a network."""
    folder = tmp_path_factory.mktemp("offline")
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    kept = {k: v for k, v in os.environ.items() if k != "MINITORCH_DATA"}
    path = os.pathsep.join([str(folder), str(ROOT), kept.get("PYTHONPATH", "")])
    kept["MINITORCH_MOJO_CACHE"] = str(build.cache_folder())  # no data, but minutes
    return {**kept, "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")}


def words_of(line: str) -> list[str]:
    """What to start: this Python, with the command's options and a few more."""
    more = next((QUICKER[known] for known in QUICKER if line.startswith(known)), "")
    program, *options = shlex.split(f"{line} {more}")
    if program == "minitorch":
        return [sys.executable, "-m", "minitorch", *options]
    return [sys.executable, str(ROOT / options[0]), *options[1:]]


def run(line: str, folder: Path, environment: dict[str, str]) -> Any:
    if "--device cuda" in line and (SIMULATED or "cuda" not in DEVICES):
        pytest.skip("there is no GPU here, and the simulator would take hours")
    if "--device" in line:
        loaded(line.partition("--device ")[2].split()[0])
    if "--track" in line:
        pytest.importorskip("tensorboardX", reason="needs the extra tracking")
    if "inspect" in line or "xray" in line:
        pytest.importorskip("numba_cuda", reason="needs the extra cuda13")
    return subprocess.run(
        words_of(line), cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.slow) if line.startswith(SLOW) else line
        for line in RUNNING
        if not line.startswith(NAMED)
    ],
)
def test_the_command_runs(line: str, tmp_path: Path, offline: dict[str, str]) -> None:
    if line.split()[:2] == ["minitorch", "test"]:
        started = run("minitorch start a1", tmp_path, offline)
        assert started.returncode == 0, started.stderr
        tmp_path /= "a1"
    if line == "minitorch runs":
        assert run("minitorch train xor", tmp_path, offline).returncode == 0
    found = run(line, tmp_path, offline)
    if line == "minitorch test":  # nothing is solved so far
        assert "0 of " in found.stdout and found.returncode == 1, found.stderr
        return
    assert found.returncode == 0, found.stdout + found.stderr
    assert "Traceback" not in found.stderr
    if line.startswith("minitorch train mnist"):
        assert "These are drawn digits" in found.stderr
    if line.startswith("minitorch train gpt"):
        assert "the beginning of Alice in Wonderland" in found.stderr


@pytest.mark.slow
def test_the_last_family_of_the_benchmark_needs_no_mnist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from minitorch.bench import epoch
    from minitorch.data import mnist

    monkeypatch.delenv("MINITORCH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(mnist, "MIRRORS", ())
    monkeypatch.setattr(epoch, "EXAMPLES", 3 * epoch.BATCH)  # all take 40 s of a core
    (case,) = epoch.epoch_cases()
    ours, theirs = case.build()
    assert "These are drawn digits" in capsys.readouterr().err
    ours()
    theirs()
