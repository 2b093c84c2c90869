"""Barriers taken out one by one: what the x-ray says, and what compute-sanitizer says.

    python docs/xray_races.py [--json FILE] [--without-gpu] [KERNEL ...]

With this file one can see whether both find the same races in shared memory. For each
launch of `cuda_ops/ladders/launches.py` and each barrier that its kernel meets, a copy
of the library without this barrier is x-rayed, and launched under `compute-sanitizer
--tool racecheck`; so is the library as it is, which must have no race at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
XRAY_NCU = ROOT / "docs" / "xray_ncu.py"  # which launches a kernel by its name
BARRIER = re.compile(r"^(\s*)(cuda\.syncthreads|cuda\.syncwarp|barrier)\(\)\s*(#.*)?$")
SAID = {True: "race", False: "none"}
COPIED, LINKED = ("cuda_ops", "assignments"), ("minitorch", "fast_ops", "docs")


class Case(NamedTuple):
    """A launch, and the barrier that is missing there: file and line, or none."""

    launch: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.launch} without {self.file}:{self.line}" if self.file else (
            f"{self.launch} as it is"
        )  # fmt: skip


def cases(launch: str) -> list[Case]:
    """The kernel as it is, and without each barrier in a function that it runs."""
    from assignments.xrays import scene_of

    found = [Case(launch)]
    for function in scene_of(launch)["functions"]:
        path = Path(function["file"])
        name = str(path.relative_to(ROOT) if path.is_absolute() else path)
        text = (ROOT / name).read_text().splitlines()
        for line in (row["line"] for row in function["lines"]):
            if BARRIER.match(text[line - 1]):
                found.append(Case(launch, name, line))
    return found


def judge(case: Case, gpu: bool) -> dict[str, Any]:
    """Whether each of the two finds a race."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, root / name)
        for name in LINKED:
            (root / name).symlink_to(ROOT / name)
        if case.file:
            path = root / case.file
            text = path.read_text().splitlines(keepends=True)
            text[case.line - 1] = BARRIER.sub("\\1pass\n", text[case.line - 1])
            path.write_text("".join(text))
        known = {**os.environ, "PYTHONPATH": folder, "NUMBA_CACHE_DIR": folder}

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                words, env=known, cwd=folder, capture_output=True, text=True
            )

        seen = run(sys.executable, "-m", "minitorch", "xray", "--json", case.launch)
        if not seen.stdout.startswith("{"):
            raise RuntimeError(f"{case}: {seen.stderr[-2000:]}")
        found: dict[str, Any] = {"case": str(case), "xray": '"race"' in seen.stdout}
        if gpu:
            tool = "compute-sanitizer", "--tool", "racecheck", sys.executable
            told = run(*tool, str(XRAY_NCU), "--launch", case.launch).stdout
            end = re.search(r"RACECHECK SUMMARY: (\d+) hazard", told)
            found["racecheck"] = int(end[1]) > 0 if end else told[-1000:]
        return found


def main() -> None:
    """Print a line for each case, and say where the two differ."""
    from cuda_ops.ladders.launches import LAUNCHES

    words = sys.argv[1:]
    target = words.pop(1) if words[:1] == ["--json"] else None
    words = [word for word in words if word != "--json"]
    gpu = "--without-gpu" not in words
    names = [word for word in words if word != "--without-gpu"] or list(LAUNCHES)
    with ThreadPoolExecutor((os.cpu_count() or 4) // 2) as pool:
        every = [case for some in pool.map(cases, names) for case in some]
        found = list(pool.map(lambda case: judge(case, gpu), every))
    for row in found:
        said = [SAID.get(row.get(k), "?") for k in ("xray", "racecheck")]
        differs = "DIFFERS" if gpu and said[0] != said[1] else ""
        print(row["case"].ljust(70), *said, differs)
    if target:
        Path(target).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
