"""Compile kernels with Numba, once, and keep the machine code on disk.

With this file one can turn a Python loop into a kernel:

    @kernel(parallel=True)
    def double(a, out):
        for i in prange(out.size):
            out[i] = a[i] + a[i]

and make one kernel for each scalar function from a template (`specialize`).

A kernel is compiled at its first call for each combination of element types and is kept
in Numba's on-disk cache. Numba by itself looks only at the file that a kernel stands
in; here the key is a digest of that file and of all that it imports from this package,
so that an edit in any of them compiles anew, and it holds for templates too, whose
closures Numba cannot recognise in the next process. Each file of the cache ends with a
digest of itself: one that was cut off or damaged is told, deleted, and made again. Of
several processes that miss the same kernel, as ranks do, one compiles it. A process can
be given a second folder, which it only reads ($MINITORCH_KERNELS): a grader's workers
have one.

A part that a student has yet to write (`minitorch/todo.py`) cannot raise an error from
within a kernel; calling the kernel raises it instead (`Unwritten`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dis import opmap
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import IO, Any, NoReturn

from numba import njit
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError

from fast_ops.late import Inner
from fast_ops.team import starts_threads
from minitorch import operators
from minitorch.backend.host.memory import SERIAL_LIMIT as SERIAL_LIMIT
from minitorch.operators import compilable
from minitorch.todo import todo, unwritten_task

SERIAL = 524_288  # multiplications (9 us on one core) that one thread does by itself

# Reorder and contract floating-point operations, but keep NaN and infinity as they are.
# Approximate quotients and roots ("arcp", "afn") are not allowed: 1 / sqrt(0) would be
# NaN with them.
FASTMATH = {"contract", "reassoc", "nsz"}

# What Numba's `parallel` does on top of `prange` loops (it looks for array expressions
# and tries to fuse them) finds nothing here, and takes time.
PRANGE_ONLY = {
    "prange": True,
    "comprehension": False,
    "fusion": False,
    "inplace_binop": False,
    "numpy": False,
    "reduction": False,
    "setitem": False,
    "stencil": False,
}


def _count_apart() -> None:
    """Let Numba count functions from another number on in each process.

    The count is what tells machine code of inner functions apart that have one name. If
    two processes counted alike, each could keep a kernel whose inner `fold` is number
    565, and who loads both would run the first one's in both: a maximum that adds.
    """
    start = int.from_bytes(os.urandom(6), "big")
    FunctionIdentity._unique_ids = itertools.count(start)


_count_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_apart)

# A folder of kernels that others compiled; here it is only read.
GIVEN = os.environ.get("MINITORCH_KERNELS", "")

IMPORTED = re.compile(r"^\s*from fast_ops\.(\w+) import", re.MULTILINE)


@cache
def sources(module: str) -> dict[str, str]:
    """The text of every file that can reach a kernel of `module`, by its module's name.

    The files are those that are loaded, which need not lie in this folder: a module of
    a student's workspace may have taken the place of ours.
    """
    texts: dict[str, str] = {}
    waiting = [module, __name__, operators.__name__]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = _source(name)
            waiting += [f"fast_ops.{part}" for part in IMPORTED.findall(texts[name])]
    return texts


@cache
def source_digest(module: str) -> str:
    """A digest of `sources`."""
    texts = sources(module)
    parts = "".join(f"{name}\n{texts[name]}\n" for name in sorted(texts))
    return hashlib.sha256(parts.encode()).hexdigest()


@cache
def _source(module: str) -> str:
    """The text that a module is loaded from; "" where that is not known."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    read = getattr(spec and spec.loader, "get_source", None)
    return (read(module) if read is not None else None) or ""


class SealedFiles(IndexDataCacheFile):
    """Numba's files of a kernel (an index, and machine code for each signature), each
    with a digest at its end, where unpickling does not look."""

    given: SealedFiles | None = None  # the same files in another folder

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if _intact(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _intact(self._data_path(name)):
            raise FileNotFoundError(name)  # which `load` takes for: compile it
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        with super()._open_for_write(filepath) as file:
            yield file
            file.flush()
            file.write(hashlib.sha256(Path(file.name).read_bytes()).digest())

    def save(self, key: Any, data: Any) -> None:
        """Keep the key beside the code: an index may be newer than what it names."""
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        """What was saved under this key, here or in the folder that is given."""
        found = super().load(key)
        if found is not None and found[0] == key:
            return found[1]
        return self.given.load(key) if self.given else None


def _intact(path: str) -> bool:
    """Whether a file of the cache can be used; a damaged one is told and deleted."""
    try:
        content = Path(path).read_bytes()
        if hashlib.sha256(content[:-32]).digest() == content[-32:]:
            return True
        print(f"fast_ops: {path} is damaged; it is made again", file=sys.stderr)
        os.unlink(path)
    except OSError:
        pass  # not there, or another user's
    return False


WAIT = 60.0  # seconds for another process to compile a kernel; most take less than one


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Keep other processes out, as long as this one is inside.

    Says whether that could be had: not where there are no locks, where no file can be
    written, or where who has the lock does not give it back in `WAIT` seconds.
    """
    alone, end = False, time.monotonic() + WAIT
    with ExitStack() as held:
        with suppress(ImportError, OSError):
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            file = held.enter_context(open(path, "ab"))
            while time.monotonic() < end:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.callback(fcntl.flock, file, fcntl.LOCK_UN)  # in forks, too
                    alone = True
                    break
                time.sleep(0.01)
        yield alone


class KernelCache(FunctionCache):
    """Numba's on-disk cache, with a key that knows all sources of a kernel.

    A process that does not find a kernel locks it until it has compiled it, and looks
    again before: another one may have just done so.
    """

    def __init__(self, py_func: Callable, key: tuple[str, ...]) -> None:
        self._held = ExitStack()
        self._key = (*key, source_digest(py_func.__module__))
        super().__init__(py_func)
        base, locator = self._impl.filename_base, self._impl.locator
        names = f"{base}.sealed", locator.get_source_stamp()
        self._cache_file = SealedFiles(self.cache_path, *names)
        self._cache_file.given = SealedFiles(GIVEN, *names) if GIVEN else None

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (sig, codegen.magic_tuple(), self._key)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Machine code from the disk; None if it is this process that compiles it."""
        found = super().load_overload(sig, target_context)
        if found is None:
            path = Path(self._cache_file._index_path + ".lock")
            self._held.enter_context(locked(path))
            found = super().load_overload(sig, target_context)
        return found

    def unlocks(self, compile: Callable) -> Callable:
        """A dispatcher's `compile`, after which others may compile: also if it fails.

        Numba's lock around it keeps this process's threads apart.
        """

        def compile_alone(sig: Any) -> Any:
            with global_compiler_lock, self._held:
                return compile(sig)

        return compile_alone

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code, unless the disk is full: then it is compiled again."""
        with suppress(OSError):
            super().save_overload(sig, data)


def cache_folder() -> Path | None:
    """Where kernels are kept on disk: NUMBA_CACHE_DIR, or this package's folder, or
    the user's cache; None where none of them can be written to."""
    try:
        return Path(KernelCache(compile_kernel, ()).cache_path)
    except RuntimeError:
        return None


class Unwritten:
    """Takes the place of a kernel that a student has yet to write."""

    def __init__(self, task: str) -> None:
        self.task = task

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise the error that names the task."""
        todo(self.task)


def unwritten(fn: Callable) -> str | None:
    """The task that is not written in `fn` or in a function that it calls, or None."""
    task = unwritten_task(fn)
    if task is not None:
        return task
    names = fn.__code__.co_names
    called = [fn.__globals__.get(name) for name in names]
    called += [cell.cell_contents for cell in fn.__closure__ or ()]
    return next((f.task for f in called if isinstance(f, Unwritten)), None)


# Names of what makes arrays and lists in a kernel, and instructions of Python that do.
MAKERS = frozenset(
    """arange array asarray ascontiguousarray astype copy empty empty_like full
    full_like list ones ones_like set zeros zeros_like""".split()
)
BUILDS = frozenset(opmap[name] for name in ("BUILD_LIST", "BUILD_SET", "BUILD_MAP"))


def makes_arrays(fn: Any) -> bool:
    """Whether `fn`, or a kernel or device function that it calls, makes an array or a
    list, as far as a name or an instruction tells."""
    code = fn.__code__
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    called = [fn.__globals__.get(name) for name in code.co_names]
    return (
        not MAKERS.isdisjoint(code.co_names)
        or any(not BUILDS.isdisjoint(c.co_code[::2]) for c in (code, *inner))
        or any(makes_arrays(f.py_func) for f in called if hasattr(f, "py_func"))
    )


def _with_arrays_if_needed(dispatcher: Any) -> Callable:
    """A dispatcher's `compile`, which tries again with room for arrays of the kernel's
    own, if it turns out that it makes some: `a + b` of two arrays has no name to tell.
    """
    compile = dispatcher.compile

    def compile_again(sig: Any) -> Any:
        try:
            return compile(sig)
        except NumbaError as error:
            options = dispatcher.targetoptions
            if options["_nrt"] or "NRT required" not in str(error):
                raise
            options["_nrt"] = True
            dispatcher._compiler._failed_cache.clear()
            return compile(sig)

    return compile_again


def compile_kernel(
    fn: Callable,
    key: tuple[str, ...] = (),
    parallel: bool = False,
    fastmath: set[str] | bool = FASTMATH,
    on_disk: bool = True,
) -> Any:
    """Compile `fn` with the settings that all kernels here share.

    Args:
        fn: a Python function on arrays and numbers.
        key: what distinguishes this kernel from others made from the same text.
        parallel: whether `prange` loops run on all cores.
        fastmath: which floating-point rules the compiler may bend.
        on_disk: keep the machine code for the next process.
    """
    task = unwritten(fn)
    if task is not None:
        return Unwritten(task)
    dispatcher = njit(
        parallel=PRANGE_ONLY if parallel else False,
        fastmath=fastmath,
        error_model="numpy",
        # Letting other threads run takes 80 ns, in which one thread does a small
        # kernel; counting who refers to an array takes 30 ns for each argument, and is
        # of use only for arrays that a kernel makes itself.
        nogil=parallel,
        _nrt=parallel or makes_arrays(fn),
        no_cfunc_wrapper=True,  # nobody calls it as a C function
    )(fn)
    if on_disk:
        try:
            kept = KernelCache(fn, (*key, str(parallel)))
            dispatcher._cache = kept
            dispatcher.compile = kept.unlocks(dispatcher.compile)
        except RuntimeError:
            pass  # no folder to write to: compile in each process
    dispatcher.compile = _with_arrays_if_needed(dispatcher)  # each try locks by itself
    if parallel:
        kept = dispatcher._cache
        kept.load_overload = starts_threads(kept.load_overload)
    return dispatcher


def kernel(
    parallel: bool = False, fastmath: set[str] | bool = FASTMATH
) -> Callable[[Callable], Any]:
    """Decorate a module-level loop: `@kernel(parallel=True)`."""

    def decorate(fn: Callable) -> Any:
        return compile_kernel(fn, (), parallel, fastmath)

    return decorate


def both(*loops: Callable) -> SimpleNamespace:
    """The loops of a family as flat kernels, each as a pair: on one thread, on all.

    They are called as the loops are, without the underscore in front.
    """
    kernels = SimpleNamespace()
    for fn in loops:
        pair = compile_kernel(fn), compile_kernel(fn, parallel=True)
        setattr(kernels, fn.__name__.lstrip("_"), pair)
    return kernels


def device_function(fn: Callable) -> Any:
    """Compile a scalar function that kernels call; it is inlined by the compiler."""
    formula = compilable(fn)
    task = unwritten(formula) if hasattr(formula, "__code__") else None
    if task is not None:
        return Unwritten(task)
    return Inner(formula, fastmath=FASTMATH)


@cache
def specialize(template: Callable, fn: Callable, parallel: bool = False) -> Any:
    """The kernel that `template(scalar)` makes from the scalar function `fn`.

    Args:
        template: a function of this package that takes a compiled scalar function and
            returns the Python loop around it.
        fn: a function of `minitorch/operators.py` (kept on disk), or a user's own
            (compiled once in each process).
        parallel: as in `compile_kernel`.
    """
    from fast_ops.vector_math import fast_form

    loop = template(fast_form(fn))
    ours = getattr(operators, fn.__name__, None) is fn
    loop.__name__ = f"{template.__name__}_{fn.__name__}"
    loop.__qualname__ = loop.__name__
    key = (template.__module__, loop.__name__)
    return compile_kernel(loop, key, parallel, on_disk=ours)


def pair(template: Callable, fn: Callable) -> tuple[Any, Any]:
    """`template(fn)` as a flat kernel: for one thread, and for all."""
    return specialize(template, fn), specialize(template, fn, parallel=True)


class Kernels(dict):
    """The kernels of one template: `kernels[fn]` compiles at the first request.

    A dict, so that a launcher pays one lookup (30 ns) for a kernel it used before.
    """

    def __init__(self, template: Callable, parallel: bool = False) -> None:
        super().__init__()
        self.template = template
        self.parallel = parallel

    def __missing__(self, fn: Callable) -> Any:
        made = self[fn] = specialize(self.template, fn, self.parallel)
        return made
