"""Wrong solutions for GPUs: what the simulator says, and what compute-sanitizer says.

    python tests/course/sanitizer.py [--json FILE] [--without-gpu] [SOLUTION ...]

With this file one can see whether both find the same mistakes. Each wrong solution
("a4-scan_in_place") and each right one ("a4.4") makes the calls of its task's checks,
with all edges, in the simulator. Of those that are right, whose threads race in shared
memory or that leave an array, `compute-sanitizer` says what it finds on the GPU: its
memcheck what leaves an array, its racecheck races, which it looks for in shared memory
only. `--json tests/cuda/measured/wrong.json` keeps that for a test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from course import solutions  # noqa: E402

from assignments import catalog, overlay  # noqa: E402
from assignments.checks import Check, why_not  # noqa: E402
from assignments.runner import Job, Own, Runners  # noqa: E402

RIGHT, RACE, OUTSIDE = "nothing", "race in shared memory", "outside of an array"
FINDS = {"racecheck": RACE, "memcheck": OUTSIDE}  # what each tool must find, no more
SUMMARY = re.compile(r"(?:RACECHECK|ERROR) SUMMARY: (\d+)")
SECONDS = 600  # for one solution under one tool


def cases() -> list[str]:
    """All wrong solutions for a GPU, and the tasks that they are for."""
    wrong = [one for one in solutions.WRONG if one.device == "cuda"]
    return sorted({one.task for one in wrong}) + [one.name for one in wrong]


def judge(name: str, gpu: bool) -> dict[str, Any]:
    """What the simulator says; and, where that concerns it, whether each tool does."""
    wrong = next((one for one in solutions.WRONG if one.name == name), None)
    task = wrong.task if wrong else name
    assignment = catalog.load(task.partition(".")[0])
    right = solutions.reference(assignment)
    with tempfile.TemporaryDirectory() as folder:
        texts = solutions.with_mistake(wrong) if wrong else right
        solutions.write_files(assignment, Path(folder) / "work", texts)
        command = [sys.executable, __file__, "--launch", task, f"{folder}/work"]

        def run(*words: str, **more: str) -> str:
            env = {**os.environ, "NUMBA_CACHE_DIR": folder, **more}
            done = subprocess.run(
                words, env=env, capture_output=True, text=True, timeout=SECONDS
            )
            return done.stdout + done.stderr

        said = run(*command, NUMBA_ENABLE_CUDASIM="1")
        kind, _, text = said.rpartition("SAYS ")[2].strip().partition(": ")
        if "SAYS " not in said:
            raise RuntimeError(f"{name}: {said[-2000:]}")
        row: dict[str, Any] = {"case": name, "simulator": kind, "text": text}
        for tool in FINDS if gpu and (kind in FINDS.values() or not wrong) else ():
            told = run("compute-sanitizer", "--tool", tool, *command)
            end = SUMMARY.search(told)
            row[tool] = int(end[1]) > 0 if end else told[-1000:]
        return row


def differs(row: dict[str, Any]) -> bool:
    """Whether a tool finds what the simulator does not, or the other way round."""
    expected = {tool: row["simulator"] == FINDS[tool] for tool in FINDS if tool in row}
    return any(row[tool] is not value for tool, value in expected.items())


# --------------------------------------------------------- in a process of a solution


def launch(task: str, folder: str) -> str:
    """Make the calls of a task with a workspace's files; what the first error is."""
    own = Own(Runners(), Job(task, "cuda", [folder]))
    files, kept = own.sources(Path(folder))
    overlay.install({name: Path(path) for name, path in files.items()}, kept)
    from assignments.calling import watched
    from cuda_ops.runtime.launch import SIMULATED
    from cuda_ops.simulator import watch

    kinds, made = [""], watch._race

    def race(me: Any, does: str, array: Any, *rest: Any) -> RuntimeError:
        kinds.append(RACE if array.shared else "race in global memory")
        return made(me, does, array, *rest)

    watch._race = race
    if not SIMULATED:
        take_exactly()
    for check in own.checks:
        if not isinstance(check, Check) or check.task != task:
            continue
        if "cuda" not in (check.devices or ["cuda"]):
            continue
        if why_not(check, "cuda", SIMULATED):
            continue
        for inputs in check.cases(0, 0):
            try:
                with watched():
                    check.call("cuda", **inputs)
            except Exception as error:
                left = OUTSIDE if isinstance(error, IndexError) else ""
                return f"{left or kinds[-1] or type(error).__name__}: {error}"
    return RIGHT


def take_exactly() -> None:
    """Each array has memory of its own, of just its bytes, which is never used again:
    so memcheck sees what goes further."""
    from cuda_ops.runtime.allocator import Block, Pool

    class Exact(Block):
        __slots__ = ()

        def free_later(self) -> None:
            pass

    def take(pool: Pool, nbytes: int, stream: int = 0) -> Block:
        bins = pool._new_bins(stream, nbytes)
        pointer = pool.books.driver.allocate(max(nbytes, 1))
        return Exact(pool, bins, pointer or 0, nbytes)

    Pool.take = take  # type: ignore[method-assign]


def main() -> None:
    """Print a line for each solution, and say where the simulator and a tool differ."""
    words = sys.argv[1:]
    if words[:1] == ["--launch"]:
        print("SAYS", launch(*words[1:]))
        return
    gpu = "--without-gpu" not in words
    words = [word for word in words if word != "--without-gpu"]
    target, names = (words[1], words[2:]) if words[:1] == ["--json"] else ("", words)
    with ThreadPoolExecutor((os.cpu_count() or 4) // 2) as pool:
        rows = list(pool.map(lambda name: judge(name, gpu), names or cases()))
    for row in rows:
        said = [f"{tool}: {row[tool]}" for tool in FINDS if tool in row]
        print(row["case"].ljust(38), row["simulator"].ljust(24), *said, end=" ")
        print("DIFFERS" if differs(row) else "")
    if target:
        Path(target).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
