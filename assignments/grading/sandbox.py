"""A process that sees, and can use up, as little as possible.

With this file the grader can find out how well this machine can shut a process in
(`best_mode`), and start one so (`start`). The modes, strongest first:

    bubblewrap   the program bwrap: own file system, no network, no other processes
    namespaces   the same, by `launch.py`, where bwrap is not installed
    user         another user, with limits; the disk and the network are there (root)
    limits       the same user, with limits; the disk and the network are there

docs/grading.md says what each mode promises.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from assignments.grading.folders import until_exit
from assignments.grading.processes import Tree, new_group

MODES = ("bubblewrap", "namespaces", "user", "limits")
STRONG = ("bubblewrap", "namespaces")

WHAT_IS_OPEN = {
    "user": "the worker could read the disk (torch too) and use the network",
    "limits": "the worker could read and write what the grader's user can",
}

# What a worker may import, apart from the standard library and the course. Names are
# those of `import`, and of folders that describe a distribution.
PACKAGES = ("numpy", "ml_dtypes", "numba", "llvmlite")
TEST_PACKAGES = (
    "hypothesis",
    "_hypothesis_globals",
    "_hypothesis_ftz_detector",
    "sortedcontainers",
    "attr",
    "attrs",
    "exceptiongroup",
)
CUDA_PACKAGES = (
    "numba_cuda",
    "_numba_cuda_redirector",
    "cuda",
    "nvidia",
    "cuda_bindings",
    "_cuda_bindings",
    "cuda_bindings-*.dist-info",  # cuda.core asks for its version
    "packaging",  # numba_cuda asks for NumPy's
    "greenlet",  # threads of the simulator
)
# The Mojo compiler, and the C compiler that it calls to link.
MOJO_PACKAGES = ("mojo", "modular", "mojo_compiler-*.dist-info")
MOJO_PROGRAMS = ("/usr/bin", "/bin", "/etc/alternatives")
# Without these a worker is of no use; the others come and go with versions. What to
# install is written as in the README.
NEEDED = {
    "numpy": ".",
    "ml_dtypes": ".",
    "numba": ".",
    "llvmlite": ".",
    "hypothesis": ".[course]",
    "numba_cuda": ".[cuda13]",
    "greenlet": ".[cuda13]",
    "torch": ".[course]",
    "mojo": ".[mojo]",
    "modular": ".[mojo]",
}
# For ranks that talk by Gloo. It is the oracle of other tasks, so that only workers
# of checks that say `torch` see it.
TORCH_PACKAGES = (
    "torch", "torchgen", "typing_extensions", "nvidia", "sympy", "mpmath", "networkx",
    "jinja2", "markupsafe", "filelock", "fsspec",
)  # fmt: skip
DEVICE_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class Limits:
    """What a worker may use up.

    Attributes:
        memory: bytes of address space of a process, and of memory of all together,
            with what they share.
        processes: processes and threads, beside those of the kernels.
        file_bytes: of the largest file it may write.
        disk_bytes: of its temporary folder.
        open_files: of one process.
        cpu_seconds: of one process.
        output_bytes: that it may print; it is ended when it prints more.
        threads: of its kernels.
    """

    memory: int = 4 << 30
    processes: int = 64
    file_bytes: int = 64 << 20
    disk_bytes: int = 128 << 20
    open_files: int = 256
    cpu_seconds: int = 600
    output_bytes: int = 4 << 20
    threads: int = 4


@dataclass(frozen=True)
class View:
    """What a worker sees.

    Attributes:
        tree: folder with the course as it is for this worker.
        packages: names of packages, see `PACKAGES`.
        programs: folders of the system, beside its libraries.
        gpu: whether it sees the graphics processors.
        environment: variables, beside those that all workers have.
        kernels: folder with compiled kernels of the library, to read (strong modes).
    """

    tree: Path
    packages: tuple[str, ...] = PACKAGES
    programs: tuple[str, ...] = ()
    gpu: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    kernels: Path | None = None


@dataclass(frozen=True)
class Started:
    """A process that was started.

    Attributes:
        process: the outermost process; what is in it ends with it.
        socket: the grader's end of the connection.
        user: the user it runs as, where that is another one.
        tree: all processes below it; None where it is the worker itself.
    """

    process: subprocess.Popen[bytes]
    socket: socket.socket
    user: int | None
    tree: Tree | None = None


def start(view: View, limits: Limits, mode: str) -> Started:
    """Start a worker; it waits for requests on its socket.

    Raises:
        RuntimeError: a package that it needs is not installed.
    """
    lacking = not_installed(view.packages)
    if lacking:
        raise RuntimeError(f"grade: {lacking}")
    user = _another_user(mode)
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    group = new_group(limits.memory, _most_processes(view, limits))
    process = subprocess.Popen(
        _command(view, limits, mode, user, number, group),
        stdin=subprocess.PIPE,  # `launch.py` ends with it
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(number,),
        start_new_session=True,
        cwd="/",
        env=_environment(view, limits, mode),
    )
    theirs.close()
    return Started(process, ours, user, Tree(process.pid, group))


def _command(
    view: View,
    limits: Limits,
    mode: str,
    user: int | None,
    number: int,
    group: Path | None,
) -> list[str]:
    """The command line of a worker in one of the modes."""
    strong = mode in STRONG
    tree = "/course" if strong else str(view.tree)
    packages = "/packages" if strong else str(_links_to(view.packages))
    command = [
        _interpreter(),
        *("-s", "-S", "-B", f"{tree}/assignments/grading/worker.py"),
        str(number),
        json.dumps(_limits(view, limits, user)),
        json.dumps([packages]),
    ]
    if mode == "bubblewrap":
        command = [*_bubblewrap(view, limits), "--", *command]
    spec: dict[str, object] = {
        "mode": mode,
        "group": str(group or ""),
        "command": command,
        "environment": _environment(view, limits, mode),
    }
    if mode == "namespaces":
        spec |= _file_system(view, limits)
    launch = str(Path(__file__).with_name("launch.py"))
    return [_interpreter(), "-s", "-S", "-B", launch, json.dumps(spec)]


def _limits(view: View, limits: Limits, user: int | None) -> dict[str, int | None]:
    """What worker.py sets for itself."""
    return {
        # CUDA takes address space for all memory of the machine and its GPUs.
        "memory": None if view.gpu else limits.memory,
        "processes": _most_processes(view, limits),
        "file_bytes": limits.file_bytes,
        "open_files": limits.open_files,
        "cpu_seconds": limits.cpu_seconds,
        "user": user,
    }


def _most_processes(view: View, limits: Limits) -> int:
    """Processes and threads; the simulator needs one for each thread of a block."""
    simulates = view.environment.get("NUMBA_ENABLE_CUDASIM") == "1"
    return limits.processes + limits.threads + (1024 if simulates else 0)


def _another_user(mode: str) -> int | None:
    """A user that owns nothing and runs nothing, if we can become another user."""
    if os.getuid() != 0 or mode == "limits":
        return None
    used = set(_users())
    while (user := 20_000 + secrets.randbelow(40_000)) in used:
        pass
    return user


def _users() -> Iterator[int]:
    """Who runs something now."""
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            found = re.search(r"^Uid:\s+(\d+)", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found:
            yield int(found[1])


def _interpreter() -> str:
    """The Python program itself: a virtual environment's link is not in the view."""
    return os.path.realpath(sys.executable)


def _environment(view: View, limits: Limits, mode: str) -> dict[str, str]:
    """All variables of a worker: nothing of the grader's own."""
    scratch = "/tmp"
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "NUMBA_CACHE_DIR": f"{scratch}/numba-{secrets.token_hex(8)}",
        "NUMBA_NUM_THREADS": str(limits.threads),
        "OMP_NUM_THREADS": str(limits.threads),
        "OMP_WAIT_POLICY": "passive",
        "OPENBLAS_NUM_THREADS": "1",
        # glibc fills new memory with the byte 0xfe: what a kernel does not write is
        # not zero, and not what an earlier kernel wrote. mallopt(3), M_PERTURB
        "MALLOC_PERTURB_": "1",
        **({"MINITORCH_KERNELS": "/kernels"} if view.kernels else {}),
        **(_gpu_environment() if view.gpu else {}),
        **view.environment,
    }


# ------------------------------------------------------------------ what is visible


def _file_system(view: View, limits: Limits) -> dict[str, object]:
    """The worker's files, for `launch.py`."""
    folders = [*view.programs]
    if view.gpu:
        folders += _driver_folders()
        toolkit = _toolkit()
        folders += [str(toolkit / "nvvm")] if toolkit else []
    binds, links = _system_files(tuple(folders))
    binds += [(str(view.tree), "/course")]
    binds += [(str(view.kernels), "/kernels")] if view.kernels else []
    found = _found(view.packages)
    binds += [(str(path), f"/packages/{name}") for name, path in found.items()]
    devices = [*DEVICE_FILES, *(_gpu_files() if view.gpu else ())]
    size = str(limits.disk_bytes)
    return {
        "root": _mount_point(),
        "binds": binds,
        "links": links,
        "masks": _masks([source for source, _ in binds]),
        "scratch": [("/tmp", size), ("/dev/shm", size)],
        "devices": devices,
    }


def _bubblewrap(view: View, limits: Limits) -> list[str]:
    """The same files, as options of bwrap(1)."""
    program = shutil.which("bwrap") or "bwrap"
    files = _file_system(view, limits)
    options = [program, "--die-with-parent", "--unshare-pid", "--unshare-net"]
    options += ["--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
    if os.getuid() == 0:
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    for target in _folders_above([target for _, target in files["binds"]]):  # type: ignore[attr-defined]
        # bwrap would make them for their owner alone.
        options += ["--perms", "0755", "--dir", target]
    for source, target in files["binds"]:  # type: ignore[attr-defined]
        options += ["--ro-bind", source, target]
    for target, link in files["links"]:  # type: ignore[attr-defined]
        options += ["--symlink", link, target]
    for target in files["masks"]:  # type: ignore[attr-defined]
        options += ["--perms", "0755", "--size", "4096", "--tmpfs", target]
    options += [
        "--proc",
        "/proc",
        "--perms",
        "0755",
        "--size",
        "4096",
        "--tmpfs",
        "/dev",
    ]
    for device in files["devices"]:  # type: ignore[attr-defined]
        options += ["--dev-bind", device, device]
    for target, size in files["scratch"]:  # type: ignore[attr-defined]
        options += ["--perms", "1777", "--size", size, "--tmpfs", target]
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def _folders_above(targets: list[str]) -> list[str]:
    """The folders in which something is mounted, outermost first."""
    above = {str(folder) for target in targets for folder in Path(target).parents}
    return sorted(above - {"/"})


@functools.cache
def _mount_point() -> str:
    """An empty folder on which each launcher, in its own namespace, mounts."""
    return str(until_exit("minitorch-root-"))


def _system_files(
    programs: tuple[str, ...],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(what to bind, symbolic links): C libraries and Python, at their own places."""
    base = Path(sys.base_prefix)
    wanted = ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache"]
    wanted += [str(base / "lib"), _interpreter(), *programs]
    binds, links = [], []
    for name in dict.fromkeys(wanted):
        if os.path.islink(name):
            links.append((name, os.readlink(name)))
        elif os.path.exists(name):
            binds.append((name, name))
    return binds, links


def _masks(sources: list[str]) -> list[str]:
    """Folders of packages that would come along with Python and the C libraries."""
    found = []
    for source, pattern in itertools.product(
        sources, ("python3*/site-packages", "python3*/dist-packages")
    ):
        if Path(source).is_dir():
            found += [str(p) for p in Path(source).glob(pattern) if not p.is_symlink()]
    return sorted(set(found))


def not_installed(names: tuple[str, ...]) -> str:
    """Which of the packages is missing, and how to install it; "" if none is."""
    for name in names:
        if name in NEEDED and not _places(name):
            return (
                f"the package {name} is not installed for {sys.executable}; "
                f"pip install -e '{NEEDED[name]}' installs it"
            )
    return ""


def _found(names: tuple[str, ...]) -> dict[str, Path]:
    """Where those of the packages are that are installed, by the names of their files.

    Where there are several, the one that the grader itself would import.
    """
    places = (path for name in names for path in _places(name))
    return {path.name: path.resolve() for path in places}


@functools.cache
def _places(name: str) -> tuple[Path, ...]:
    """A package's folder or file, and the folder of its libraries; () without it.

    The import system is asked, which alone knows: a folder of `sys.path` has other
    things by that name, too, such as the script `numba` in an environment's `bin`.
    """
    if name.endswith(".dist-info"):
        return tuple(p for folder in _installed_in() for p in folder.glob(name))[:1]
    spec = importlib.util.find_spec(name)
    if spec is None:
        return ()
    parts = [Path(part) for part in spec.submodule_search_locations or ()]
    if spec.origin is None:
        # Without an __init__.py, any folder of that name counts as a part.
        return tuple(part for part in parts if part.parent in _installed_in())[:1]
    path = parts[0] if parts else Path(spec.origin)
    libraries = path.resolve().with_name(f"{name}.libs")
    return (path, libraries) if libraries.is_dir() else (path,)


@functools.cache
def _installed_in() -> tuple[Path, ...]:
    """The folders that something is installed in."""
    found = (Path(str(each.locate_file(""))) for each in metadata.distributions())
    return tuple(dict.fromkeys(found))


@functools.cache
def _links_to(names: tuple[str, ...]) -> Path:
    """A folder with links to packages, where there can be no view of its own."""
    folder = until_exit("minitorch-packages-")
    folder.chmod(0o755)
    for name, path in _found(names).items():
        (folder / name).symlink_to(path)
    return folder


@functools.cache
def _driver_folders() -> tuple[str, ...]:
    """Where the libraries of NVIDIA's driver are, if not among the system's.

    A container often has them in a folder of their own, which ld.so is told by a
    variable that workers do not get.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    loaded = Path("/proc/self/maps").read_text()
    files = re.findall(r"\s(/\S*/lib(?:cuda|nvidia)[^/\s]*)$", loaded, re.MULTILINE)
    folders = sorted({str(Path(file).parent) for file in files})
    return tuple(f for f in folders if not f.startswith(("/usr/lib", "/lib")))


@functools.cache
def _toolkit() -> Path | None:
    """CUDA's toolkit, where it is installed beside the Python packages or for them.

    Its folder `nvvm` holds the compiler that Numba needs.
    """
    nvcc = shutil.which("nvcc")
    named = [
        os.environ.get("CUDA_PATH"),
        os.environ.get("CUDA_HOME"),
        "/usr/local/cuda",
    ]
    named += [str(Path(nvcc).resolve().parents[1])] if nvcc else []
    roots = (Path(name).resolve() for name in named if name)
    return next((root for root in roots if (root / "nvvm").is_dir()), None)


def _gpu_environment() -> dict[str, str]:
    """What tells programs where the driver and the toolkit are."""
    made = {"LD_LIBRARY_PATH": ":".join(_driver_folders())}
    toolkit = _toolkit()
    return made | {"CUDA_HOME": str(toolkit)} if toolkit else made


def _gpu_files() -> list[str]:
    return [str(path) for path in sorted(Path("/dev").glob("nvidia*")) if path.exists()]


# ------------------------------------------------------------------------- the mode


@functools.cache
def best_mode() -> str:
    """The strongest mode that works here; each is tried.

    Raises:
        RuntimeError: none is safe: the grader is root and cannot become anybody else.
    """
    reasons = []
    for mode in MODES:
        if mode == "limits" and os.getuid() == 0:
            break
        problem = why_not(mode)
        if not problem:
            return mode
        reasons.append(f"{mode}: {problem}")
    raise RuntimeError(
        "grade: no sandbox works here, and as root a submission could do anything "
        "(" + "; ".join(reasons) + "). Run as an ordinary user, or install bubblewrap"
    )


@functools.cache
def why_not(mode: str) -> str:
    """Start a worker in a mode; "" if that works, else what goes wrong."""
    from assignments.grading.channel import Failed, Worker
    from assignments.grading.library import bare_tree

    if mode not in MODES:
        raise ValueError(f"sandbox: no mode {mode!r}; there are {', '.join(MODES)}")
    if mode == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed"
    if mode == "user" and os.getuid() != 0:
        return "only root can become another user"
    with Worker(View(bare_tree()), Limits(), mode) as worker:
        try:
            worker.request({"do": "start", "module": ""}, seconds=60)
        except Failed as failure:
            said = bytes(worker.output).decode(errors="replace").strip().splitlines()
            return "; ".join([str(failure), *said[-1:]])
    return ""
