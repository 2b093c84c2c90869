"""Starts a worker without bubblewrap: `python -s -S launch.py SPEC`.

With this script the grader starts a command in namespaces of its own, where the system
lets it (`enter`), or under a parent that ends all it leaves behind (`supervise`). It
is run by the grader, and uses the standard library alone; calls of Linux that Python
3.10 lacks are made through ctypes. The man pages unshare(2), mount(2), pivot_root(2)
and prctl(2) describe them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
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


def enter(spec: dict[str, Any]) -> int:
    """Run the command where it sees only what the specification names; its status."""
    user, group = os.getuid(), os.getgid()
    check(LIBC.unshare(NEW_NAMESPACES | (CLONE_NEWUSER if user else 0)), "unshare")
    if user:
        _map_user(user, group)
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    child = os.fork()
    if child == 0:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _populate(spec)
        _enter_root(spec["root"])
        os.execve(spec["command"][0], spec["command"], spec["environment"])
    return _status(os.waitpid(child, 0)[1])


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


def supervise(spec: dict[str, Any]) -> int:
    """Run the command, then end everything that it has started; its status."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    stopped = False

    def stop(*_: Any) -> None:
        nonlocal stopped
        stopped = True
        _end_all(os.getpid())

    signal.signal(signal.SIGTERM, stop)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execve(spec["command"][0], spec["command"], spec["environment"])
    status = _wait_for(child)
    _end_all(os.getpid())
    return status


def _wait_for(child: int) -> int:
    """Wait for one child, and for those of its children that became ours."""
    while True:
        number, status = os.waitpid(-1, 0)
        if number == child:
            return _status(status)


def _end_all(ours: int) -> None:
    """Kill all descendants, until there are none."""
    for _ in range(1000):
        for number in descendants(ours):
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


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
    try:
        with open(f"/proc/{number}/stat") as file:
            # The name of the program, in brackets, may itself contain brackets.
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


def _status(status: int) -> int:
    """A wait status as shells write it: 128 + signal for one that was killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main() -> None:
    """Start what the specification says."""
    spec = json.loads(sys.argv[1])
    run = enter if spec["mode"] == "namespaces" else supervise
    os._exit(run(spec))


if __name__ == "__main__":
    main()
