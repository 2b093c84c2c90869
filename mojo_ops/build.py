"""Compile a file of Mojo kernels, once, and keep the result for the next process.

With this file one can have a `.mojo` file of this folder as a shared library
(`built("matmul")`), compiled at the first request and found in the user's cache
afterwards, and ask whether that can work here at all (`check_platform`). The name of
the file in the cache is a digest of all that decides what is in it (the text of the
file and of those it imports, the compiler's version, the processor and the flags), and
a digest of what is in it: a file that was damaged is compiled again. A process can be
given a second folder, which it only reads ($MINITORCH_KERNELS, as in
`fast_ops/launch.py`).

Nothing is compiled when a package is installed, and no compiled file is passed on: the
compiler's licence does not allow it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGE = "mojo-compiler"
WRITTEN_FOR = "1.2.0"  # as setup.cfg pins it
CACHE, GIVEN = "MINITORCH_MOJO_CACHE", "MINITORCH_KERNELS"
GLIBC = (2, 34)  # what the compiler's binary asks for
INSTALL = "pip install 'minitorch[mojo]' (in a clone: pip install -e '.[mojo]')"

# A module's file in the place of ours: {"matmul": Path("my/matmul.mojo")}. The
# grader sets it for a student's workspace, before a kernel of that module is used.
replaced: dict[str, Path] = {}

# What the compiler said about files that do not compile: it would say it again.
_failures: dict[Path, str] = {}

# Comments that say what an assignment takes out; they change nothing.
_MARKER = re.compile(r"^ *# (?:BEGIN|END) SOLUTION .*\n", re.MULTILINE)
_IMPORT = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


# ------------------------------------------------------------------ can it work here?


def check_platform() -> None:
    """Raise ImportError, with the reason, where the compiler cannot be used."""
    if sys.platform == "win32":
        raise ImportError("Mojo has no compiler for Windows", name="mojo platform")
    library, version = platform.libc_ver()
    if library == "glibc" and _numbers(version) < GLIBC:
        raise ImportError(
            f"the Mojo compiler needs glibc {GLIBC[0]}.{GLIBC[1]} or newer, and this "
            f"system has {version}",
            name="mojo platform",
        )
    compiler()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


@cache
def compiler() -> Path:
    """The compiler's program; a ModuleNotFoundError says how to install it."""
    spec = importlib.util.find_spec("mojo")
    if spec is not None and spec.origin is None:
        # The package has no __init__.py: any folder called mojo is a part of it.
        for part in spec.submodule_search_locations or ():
            program = Path(part).parent / "modular" / "bin" / "mojo"
            if program.exists():
                return program
    raise ModuleNotFoundError("the Mojo compiler is not installed", name="mojo")


@cache
def version() -> str:
    """The version of the installed compiler."""
    return importlib.metadata.version(PACKAGE)


@cache
def processor() -> str:
    """What the code is made for: the architecture, and what the processor can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    known = {line for line in lines if line.startswith(wanted)}
    return "\n".join([platform.machine(), *sorted(known)])


# ------------------------------------------------------------------------ the sources


def source(module: str) -> Path:
    """The file of a module, ours or the one that takes its place."""
    return replaced.get(module, FOLDER / f"{module}.mojo")


def sources(module: str, source: Callable[[str], Path] = source) -> dict[str, str]:
    """The text of a module and of all modules that it imports, by name."""
    texts: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in texts and source(name).exists():
            texts[name] = source(name).read_text()
            waiting += _IMPORT.findall(texts[name])
    return texts


def flags() -> list[str]:
    """More flags for the compiler, from MINITORCH_MOJO_FLAGS ("-D ASSERT=all")."""
    return os.environ.get("MINITORCH_MOJO_FLAGS", "").split()


def digest(texts: dict[str, str]) -> str:
    """A name for what the compiler makes of these sources, here and now."""
    parts = [version(), processor(), *flags()]
    parts += [f"{name}\n{_MARKER.sub('', texts[name])}" for name in sorted(texts)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


# ------------------------------------------------------------------------ the compiler


def cache_folder() -> Path:
    """Where compiled kernels are kept: MINITORCH_MOJO_CACHE, or the user's cache."""
    named = os.environ.get(CACHE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "minitorch" / "mojo"


@cache
def load_runtime() -> None:
    """Load what compiled kernels are linked with.

    They look for it where the compiler was that made them: in a sandbox, elsewhere.
    """
    for file in (compiler().parents[1] / "lib").glob("libKGENCompilerRTShared.*"):
        ctypes.CDLL(str(file))


def built(module: str) -> Path:
    """The shared library of a module; compiles it if nobody has done so before."""
    texts = sources(module)
    target = cache_folder() / f"{module}-{digest(texts)}.so"
    return compiled(target, source(module), texts, ["--emit", "shared-lib"])


def compiled(
    target: Path, file: Path, texts: dict[str, str], options: Sequence[str]
) -> Path:
    """`target`, made from a module's file unless somebody has done so before.

    Args:
        target: a file in the cache, whose name tells what decides what is in it; the
            file that is returned has a digest of its content in its name as well.
        file: the module's source, which error messages name.
        texts: the module, first, and what it imports; see `sources`.
        options: what to make: a library, or code for another processor.
    """
    made = kept(target)
    if made is None:
        if target in _failures:
            raise RuntimeError(_failures[target])
        _make(target.parent)
        with _locked(target):
            made = kept(target) or _compile(file, texts, options, target)
    return made


def kept(target: Path) -> Path | None:
    """The file that was made for `target` before, or None; a damaged one is deleted."""
    folders = [target.parent, *map(Path, filter(None, [os.environ.get(GIVEN)]))]
    pattern = f"{target.stem}.*{target.suffix}"
    for file in (file for folder in folders for file in folder.glob(pattern)):
        with suppress(OSError):  # gone, or another user's; where it matters, told later
            if file.name == named(target, file.read_bytes()).name:
                return file
            print(f"mojo_ops: {file} is damaged; it is made again", file=sys.stderr)
            file.unlink()
    return None


def named(target: Path, content: bytes) -> Path:
    """The name under which `content` is kept for `target`."""
    return target.with_suffix(
        f".{hashlib.sha256(content).hexdigest()[:20]}{target.suffix}"
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise RuntimeError(
            f"mojo_ops: compiled kernels are kept in {folder}, which cannot be written "
            f"to; set {CACHE} to a folder that can"
        )


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Let one process compile a module while the others wait for it."""
    import fcntl

    lock = target.with_suffix(".lock")
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _compile(
    file: Path, texts: dict[str, str], options: Sequence[str], target: Path
) -> Path:
    """Compile in a folder of its own, and rename the result, so that nobody ever
    loads half a file."""
    work = target.with_suffix(f".{os.getpid()}")
    work.mkdir(exist_ok=True)
    try:
        for name, text in texts.items():
            (work / f"{name}.mojo").write_text(text)
        made, first = work / f"made{target.suffix}", work / f"{next(iter(texts))}.mojo"
        command = [str(compiler()), "build", str(first), "-I", str(work)]
        command += [*options, "--disable-warnings", *flags(), "-o", str(made)]
        with _progress(file, target.parent):
            run = subprocess.run(
                command, env=_environment(), capture_output=True, text=True
            )
        if run.returncode != 0 or not made.exists():
            _failures[target] = _failure(file, run.stderr, first)
            raise RuntimeError(_failures[target])
        return made.rename(named(target, made.read_bytes()))
    finally:
        for left in work.iterdir():
            left.unlink()
        work.rmdir()


def _environment() -> dict[str, str]:
    """What the compiler is told: where its files are, and to send nothing home."""
    root = compiler().parent.parent
    return {
        "MODULAR_MAX_PACKAGE_ROOT": str(root),
        "MODULAR_MOJO_MAX_PACKAGE_ROOT": str(root),
        "MODULAR_MOJO_MAX_DRIVER_PATH": str(compiler()),
        "MODULAR_MOJO_MAX_IMPORT_PATH": str(root / "lib" / "mojo"),
        "MODULAR_CACHE_DIR": str(cache_folder() / "compiler"),
        **os.environ,
        "MODULAR_TELEMETRY_ENABLED": "false",
        "MODULAR_CRASH_REPORTING_ENABLED": "false",
    }


@contextmanager
def _progress(file: Path, folder: Path) -> Iterator[None]:
    """Say on stderr what takes so long, and how long it took."""
    start = time.perf_counter()
    print(
        f"mojo_ops: compiling {file.parent.name}/{file.name}, once, into {folder} ...",
        end="",
        file=sys.stderr,
        flush=True,
    )
    try:
        yield
    finally:
        print(f" {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)


def _failure(file: Path, output: str, copy: Path) -> str:
    """The compiler's complaint about the file that the user can edit."""
    text = output.replace(str(copy), str(file))
    text = text.replace(f"{copy.parent}{os.sep}", f"{FOLDER}{os.sep}")
    shown = "\n".join(text.splitlines()[:30])
    return f"mojo_ops: {file} does not compile:\n{shown}"
