"""The program `minitorch` in an environment that is as new as a teacher's.

With this file a test can make a virtual environment that takes what is installed here
for its own, so that it needs no network and is there in seconds (`make`), and run a
program with nothing of this checkout or this process around it (`run`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

# What would lead a new process to this checkout or to the settings of this one.
PRIVATE = ("PYTHON", "PIP_", "VIRTUAL_ENV", "PYTEST_", "NUMBA_ENABLE_CUDASIM")


def packages(folder: Path) -> Path:
    """A folder with links to all that is installed here, but for minitorch."""
    folder.mkdir()
    for each in metadata.distributions():
        place = Path(str(each.locate_file("")))
        if not any(place.glob("*.dist-info")):
            continue  # a checkout
        for path in place.iterdir():
            link = folder / path.name
            if "minitorch" not in path.name and not link.exists():
                link.symlink_to(path.resolve())
    return folder


def make(folder: Path, wheel: Path) -> Path:
    """A virtual environment with a wheel in it; its folder of programs.

    As in any environment, programs lie beside `minitorch` that are called as packages
    are: numba, hypothesis, mojo.
    """
    run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = run([folder / "bin" / "python", "-c", program]).stdout.strip()
    (Path(found) / "installed_here.pth").write_text(
        f"{packages(folder / 'packages')}\n"
    )
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    for script in Path(sysconfig.get_path("scripts")).iterdir():
        target = folder / "bin" / script.name
        if script.is_file() and not target.exists():
            shutil.copy2(script, target)
    return folder / "bin"


def run(
    command: list[str | Path], check: bool = False, **variables: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run a program, in the folder "/", with these variables; what it printed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(PRIVATE)}
    ended = subprocess.run(
        [str(word) for word in command],
        cwd="/",
        env={**kept, **{name: str(value) for name, value in variables.items()}},
        capture_output=True,
        text=True,
    )
    if check and ended.returncode:
        raise RuntimeError(f"{command}: {ended.stdout}{ended.stderr}")
    return ended
