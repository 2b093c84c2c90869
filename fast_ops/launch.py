"""Compile kernels with Numba, once, and keep the machine code on disk.

With this file one can turn a Python loop into a kernel:

    @kernel(parallel=True)
    def double(a, out):
        for i in prange(out.size):
            out[i] = a[i] + a[i]

and make one kernel for each scalar function from a template (`specialize`).

A kernel is compiled at its first call for each combination of element types and is kept
in Numba's on-disk cache. Numba by itself looks only at the file that a kernel stands
in; here the key is a digest of all files that kernels are made from, so that an edit in
any of them compiles anew, and it holds for templates too, whose closures Numba cannot
recognise in the next process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

from minitorch import operators
from minitorch.operators import compilable

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

# Below this many elements a parallel region costs more than it saves: 1 to 2 us with
# OpenMP, 30 to 60 us with Numba's workqueue.
SERIAL_LIMIT = 32_768


@cache
def source_digest() -> str:
    """A digest of every file whose text can reach a kernel."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    files = [*sorted(here.rglob("*.py")), Path(operators.__file__)]
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


class KernelCache(FunctionCache):
    """Numba's on-disk cache, with a key that knows all sources of a kernel."""

    def __init__(self, py_func: Callable, key: tuple[str, ...]) -> None:
        self._key = (*key, source_digest())
        super().__init__(py_func)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (sig, codegen.magic_tuple(), self._key)


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
    dispatcher = njit(
        parallel=PRANGE_ONLY if parallel else False,
        fastmath=fastmath,
        error_model="numpy",
        nogil=True,
    )(fn)
    if on_disk:
        try:
            dispatcher._cache = KernelCache(fn, (*key, str(parallel)))
        except RuntimeError:
            pass  # no folder to write to: compile in each process
    return dispatcher


def kernel(
    parallel: bool = False, fastmath: set[str] | bool = FASTMATH
) -> Callable[[Callable], Any]:
    """Decorate a module-level loop: `@kernel(parallel=True)`."""

    def decorate(fn: Callable) -> Any:
        return compile_kernel(fn, (), parallel, fastmath)

    return decorate


def device_function(fn: Callable) -> Any:
    """Compile a scalar function that kernels call; it is inlined by the compiler."""
    return njit(fastmath=FASTMATH, error_model="numpy")(compilable(fn))


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
