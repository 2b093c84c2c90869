"""All processes of a worker, as one.

With this file the grader can see what a worker and all that it has started use up
(`Tree.memory`, `Tree.cpu`), let them stand still (`Tree.freeze`) and end them
(`Tree.kill`). Where the system lets it, they are a control group (cgroups(7), version
2), which nothing gets out of; else they are found as descendants in /proc.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from assignments.grading.launch import descendants, state_of, text

PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
FREEZE_SECONDS = 5.0  # for which they may go on after they were told to stop


class Tree:
    """The processes below one.

    Args:
        launcher: the process that started them and is none of them.
        group: the folder of their control group; None where there is none.
        alone: whether there is no launcher: that process is the first of them.
    """

    def __init__(
        self, launcher: int, group: Path | None = None, alone: bool = False
    ) -> None:
        self.launcher, self.group, self.alone = launcher, group, alone

    def processes(self) -> list[int]:
        """Their numbers."""
        if self.group is not None:
            return list(map(int, text(f"{self.group}/cgroup.procs").split()))
        if self.alone:
            return _with_children(self.launcher)
        return descendants(self.launcher) if os.path.isdir("/proc/self") else []

    def memory(self, limit: int) -> int:
        """Bytes that they hold together, shared memory and files in memory as well.

        Args:
            limit: below it, a sum that counts shared pages more than once will do.
        """
        found = self.processes()
        files = _files_in_memory(found)
        resident = sum(_resident(number) for number in found)
        if resident + files <= limit:
            return resident + files
        return sum(_proportional(number) for number in found) + files

    def cpu(self) -> float:
        """Seconds of processors that they have used, those that have ended as well."""
        if self.group is not None:
            found = re.search(r"usage_usec (\d+)", text(f"{self.group}/cpu.stat"))
            return int(found[1]) * 1e-6 if found else 0.0
        # What has ended counts for whoever waited for it; in the end, the launcher.
        ended = 0.0 if self.alone else _ticks(self.launcher, 2, 4)
        return ended + sum(map(_used, self.processes()))

    def waited(self) -> float:
        """Seconds for which their threads could have run and did not, together."""
        return sum(map(_waiting, self.processes()))

    def freeze(self) -> bool:
        """Let them stand still; whether they do."""
        if self.group is not None:
            (self.group / "cgroup.freeze").write_text("1")
            events = f"{self.group}/cgroup.events"
            return _until(lambda: "frozen 1" in text(events))
        return _until(self._all_stopped) and self._all_stopped()

    def thaw(self) -> None:
        """Let them go on."""
        if self.group is not None:
            (self.group / "cgroup.freeze").write_text("0")
            return
        for number in self.processes():
            send(number, signal.SIGCONT)

    def _all_stopped(self) -> bool:
        """Stop those that run; whether there were none."""
        running = [n for n in self.processes() if _state(n) not in "TtZX"]
        for number in running:
            send(number, signal.SIGSTOP)
        return not running

    def kill(self) -> None:
        """End them all; without a group, those that can be found."""
        if self.group is not None:
            try:
                (self.group / "cgroup.kill").write_text("1")
            except OSError:
                pass  # before Linux 5.14, or the group is gone with its processes
        for number in self.processes():
            send(number, signal.SIGKILL)

    def remove(self) -> None:
        """Remove the group, once they have ended."""
        if self.group is not None and self.group.is_dir():
            _until(lambda: remove_group(str(self.group)))


def send(number: int, what: signal.Signals) -> None:
    """A signal to a process that may have gone meanwhile."""
    try:
        os.kill(number, what)
    except (ProcessLookupError, PermissionError):
        pass


def _until(done: Callable[[], bool]) -> bool:
    """Ask again and again for a while; whether the answer was yes."""
    end = time.monotonic() + FREEZE_SECONDS
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


# ------------------------------------------------------------------- control groups


def new_group(memory: int, processes: int) -> Path | None:
    """A new control group with limits, as far as there are any; None without.

    Of what is there, only freezing is needed: memory and processes have other limits,
    too, and those that hold in a group are the stricter ones.
    """
    for parent in _parents():
        folder = parent / f"minitorch-{os.getpid()}-{secrets.token_hex(6)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if not (folder / "cgroup.freeze").exists():
            remove_group(str(folder))
            continue
        for name, value in (
            ("memory.max", memory),
            ("memory.swap.max", 0),
            ("memory.oom.group", 1),
            ("pids.max", processes),
        ):
            try:
                with open(folder / name, "r+") as file:
                    file.write(str(value))
            except OSError:
                pass  # this system limits that in no group, or not here
        return folder
    return None


def _parents() -> Iterator[Path]:
    """Where a group could be made: at the top, and where this process is."""
    mounted = text("/proc/self/mountinfo")
    found = re.search(r"(?m)^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", mounted)
    own = re.search(r"^0::/(.*)$", text("/proc/self/cgroup"), re.MULTILINE)
    if found:
        yield Path(found[1])
        if own and own[1]:
            yield Path(found[1]) / own[1]


def remove_group(folder: str) -> bool:
    """Remove a group; whether it is gone."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


# ----------------------------------------------------------------- what /proc says


def _resident(number: int) -> int:
    """Bytes of memory that a process sees, shared or not."""
    fields = text(f"/proc/{number}/statm").split()
    return int(fields[1]) * PAGE if len(fields) > 1 else 0


def _proportional(number: int) -> int:
    """Bytes that a process holds, with its part of what it shares."""
    rollup = text(f"/proc/{number}/smaps_rollup")
    found = re.findall(r"(?m)^(?:Pss_Anon|Pss_Shmem|SwapPss): +(\d+) kB", rollup)
    return sum(map(int, found)) << 10 if found else _resident(number)


def _files_in_memory(numbers: list[int]) -> int:
    """Bytes of open files that lie on no disk, mapped or not."""
    sizes: dict[tuple[int, int], int] = {}
    for number in numbers:
        try:
            with os.scandir(f"/proc/{number}/fd") as entries:
                for entry in entries:
                    if os.readlink(entry.path).startswith(("/memfd:", "/dev/shm/")):
                        about = os.stat(entry.path)
                        key = about.st_dev, about.st_ino
                        sizes[key] = about.st_blocks * 512
        except OSError:
            pass  # it has gone
    return sum(sizes.values())


def _with_children(number: int) -> list[int]:
    """A process and those below it, as the kernel lists them, proc(5).

    To look at all processes of a machine takes some twenty times as long, and is for
    those who would hide: a child can be left out while another one ends.
    """
    if not os.path.exists(f"/proc/{number}/task/{number}/children"):
        return [number, *(descendants(number) if os.path.isdir("/proc/self") else ())]
    found = [number]
    for parent in found:  # which gets longer
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                listed = text(f"/proc/{parent}/task/{thread}/children")
                found += map(int, listed.split())
    return found


def _state(number: int) -> str:
    return (state_of(number) or ["X"])[0]


def _ticks(number: int, first: int, last: int) -> float:
    """Seconds of fields of a process's times: user, system, and of children those."""
    return sum(map(int, state_of(number)[11:][first:last])) / TICKS


def _used(number: int) -> float:
    """Seconds that a process has used, and those of its children that have ended."""
    exact = _of_threads(number, 0)  # of those that there are; ticks are coarse
    return max(exact, _ticks(number, 0, 2)) + _ticks(number, 2, 4)


def _waiting(number: int) -> float:
    """Seconds for which threads of a process could have run and did not.

    A compiler's first thread sleeps while others work: all of them count.
    """
    return _of_threads(number, 1)


def _of_threads(number: int, field: int) -> float:
    """Seconds of a field of the scheduler's statistics, of all threads together."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{number}/task"):
            fields = text(f"/proc/{number}/task/{thread}/schedstat").split()
            total += int(fields[field]) if len(fields) > field else 0
    except OSError:
        pass
    return total * 1e-9


def cores() -> set[int]:
    """The processors that this process, and so its workers, may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def busy() -> float:
    """Seconds for which our processors were busy since the start, each on average.

    What a host takes from a virtual machine counts as busy.
    """
    ours = {f"cpu{number}" for number in cores()}
    total = 0
    for line in text("/proc/stat").splitlines():
        name, *fields = line.split()
        if name in ours:
            user, nice, system, _, _, irq, soft, steal = map(int, fields[:8])
            total += user + nice + system + irq + soft + steal
    return total / TICKS / len(ours)
