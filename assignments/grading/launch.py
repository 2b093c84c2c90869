"""Starts a worker, and ends it with the grader: `python -s -S launch.py SPEC`.

With this script the grader starts a command in namespaces of its own, where the system
lets it, or just below this process, which ends all that the command leaves behind. Its
standard input is a pipe from the grader in which nothing is ever written: however the
grader ends, the pipe is closed then. It uses the standard library alone; calls of Linux
that Python 3.10 lacks are made through ctypes. The man pages unshare(2), mount(2),
pivot_root(2), prctl(2) and netdevice(7) describe them.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NAMESPACES = (
    0x00020000  # CLONE_NEWNS: mounts
    | 0x04000000  # CLONE_NEWUTS: the machine's name
    | 0x08000000  # CLONE_NEWIPC: System V queues and shared memory
    | 0x20000000  # CLONE_NEWPID
    | 0x40000000  # CLONE_NEWNET
)
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 0x400, 0x800, 0x200000
# What a mount in a user namespace has to keep when it becomes read-only.
KEPT = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 1, 0x40  # netdevice(7)
STOPPING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def check(result: int, what: str) -> None:
    """Raise the error of the last call, if it failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)"""
    names = (source.encode(), target.encode(), kind.encode())
    check(LIBC.mount(*names, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


# --------------------------------------------------------------------- namespaces


def _leave_the_system() -> None:
    """Let the next child have namespaces of its own."""
    user, group = os.getuid(), os.getgid()
    check(LIBC.unshare(NEW_NAMESPACES | (CLONE_NEWUSER if user else 0)), "unshare")
    if user:
        _map_user(user, group)
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    _raise_loopback()
    try:
        # Memory that stays when nobody is attached to it could not be counted.
        with open("/proc/sys/kernel/shmmax", "w") as file:
            file.write("0")
    except OSError:
        pass


def _raise_loopback() -> None:
    """Let processes of the new network talk to each other; nobody else is in it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def _map_user(user: int, group: int) -> None:
    """Be user 1000 inside: somebody who has no rights after the next exec."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"1000 {user} 1"),
        ("gid_map", f"1000 {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _populate(spec: dict[str, Any]) -> None:
    """Build the file system under `root`: nothing but what is listed."""
    root = spec["root"]
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    for target, size in spec["scratch"]:
        os.makedirs(root + target, exist_ok=True)
        mount("tmpfs", root + target, "tmpfs", MS_NOSUID, f"size={size},mode=1777")
    for target, link in spec["links"]:
        os.makedirs(os.path.dirname(root + target), exist_ok=True)
        os.symlink(link, root + target)
    for source, target in spec["binds"]:
        _bind(source, root + target, writable=False)
    for target in spec["masks"]:
        mount("tmpfs", root + target, "tmpfs", MS_RDONLY, "size=4k,mode=755")
    for device in spec["devices"]:
        _bind(device, root + device, writable=True)
    os.makedirs(root + "/proc", exist_ok=True)
    try:
        mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        pass  # some containers do not allow it; the worker can do without


def _bind(source: str, target: str, writable: bool) -> None:
    """Let `source` appear at `target`."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    mount(source, target, "none", MS_BIND | (MS_REC if os.getuid() else 0))
    if not writable:
        kept = os.statvfs(target).f_flag & KEPT if os.getuid() else MS_NOSUID | MS_NODEV
        mount("none", target, "none", MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def _enter_root(root: str) -> None:
    """Make `root` the root, and let go of the old one."""
    os.chdir(root)
    number = SYS_PIVOT_ROOT[os.uname().machine]
    # Both names are ".": the old root comes to lie on the new one, pivot_root(2).
    check(LIBC.syscall(number, b".", b"."), "pivot_root")
    check(LIBC.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")
    mount("none", "/", "none", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


# --------------------------------------------------------------------- supervision


def run(spec: dict[str, Any]) -> int:
    """Run the command until it or the grader ends, and nothing after it; its status."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    alarm, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for kind in STOPPING | {signal.SIGCHLD}:
        signal.signal(kind, lambda *_: None)
    groups, name = os.path.split(spec["group"] or "/")
    above = os.open(groups, os.O_RDONLY)  # once the child has its files, we have them
    inside = spec["mode"] == "namespaces"
    if inside:
        _leave_the_system()
    child = os.fork()
    if child == 0:
        _become(spec)
    status = _wait_for(child, alarm)
    # What ends a namespace's first process ends all others; here /proc is theirs.
    _end_all(lambda: [child] if inside else descendants(os.getpid()))
    if name:
        _remove(name, above)
    return status


def _become(spec: dict[str, Any]) -> None:
    """Be the command, in its control group."""
    for kind in STOPPING | {signal.SIGCHLD}:
        signal.signal(kind, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if spec["group"]:
        with open(f"{spec['group']}/cgroup.procs", "w") as file:
            file.write("0")
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    if spec["mode"] == "namespaces":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _populate(spec)
        _enter_root(spec["root"])
    os.execve(spec["command"][0], spec["command"], spec["environment"])


def _wait_for(child: int, alarm: int) -> int:
    """Wait for a child, and for what of its children became ours; its status.

    128 + SIGTERM if the grader has gone, or somebody asks us to go.
    """
    poll = select.poll()
    poll.register(alarm, select.POLLIN)
    poll.register(0, 0)  # that the other end is closed is always told
    while True:
        numbers = [number for number, _ in poll.poll()]
        if 0 in numbers or (alarm in numbers and STOPPING & {*os.read(alarm, 512)}):
            return 128 + signal.SIGTERM
        for number, status in _ended():
            if number == child:
                return _status(status)


def _ended() -> Iterator[tuple[int, int]]:
    """Children that have ended, and how; those below us are ours when theirs ended."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found
    except ChildProcessError:
        return


def _remove(group: str, above: int) -> None:
    for _ in range(100):
        try:
            return os.rmdir(group, dir_fd=above)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)


def _end_all(find: Callable[[], list[int]]) -> None:
    """Kill what `find` finds until no child is left."""
    for _ in range(1000):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for number in find():
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.002)


def descendants(ours: int) -> list[int]:
    """The processes that descend from one, nearest first."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _parent(name)
            parents.setdefault(parent, []).append(int(name))
    found, at = [ours], 0
    while at < len(found):
        found += parents.get(found[at], [])
        at += 1
    return found[1:]


def _parent(number: str) -> int:
    fields = state_of(number)
    return int(fields[1]) if len(fields) > 1 else -1


def state_of(number: int | str) -> list[str]:
    """The fields of /proc/NUMBER/stat from the state on; [] if it has gone."""
    # The name of the program, in brackets, may itself contain brackets.
    return text(f"/proc/{number}/stat").rpartition(")")[2].split()


def text(path: str) -> str:
    """What a small file says; "" if it cannot be read.

    All processes of a machine are looked at again and again, and `open` takes three
    times as long.
    """
    parts = []
    try:
        number = os.open(path, os.O_RDONLY)
        try:
            while part := os.read(number, 4096):
                parts.append(part)
        finally:
            os.close(number)
    except OSError:
        return ""
    return b"".join(parts).decode(errors="replace")


def _status(status: int) -> int:
    """A wait status as shells write it: 128 + signal for one that was killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main() -> None:
    """Start what the specification says."""
    os._exit(run(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
