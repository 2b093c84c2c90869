"""How many threads the kernels use, and how they are woken.

With this file one can set and ask the number of threads (`set_num_threads`,
`get_num_threads`), and ask which threading layer Numba found (`threading_layer`).

Numba starts its threads with OpenMP or TBB where the machine has them: a parallel loop
then costs 1 to 2 us. Everywhere else it brings its own, "workqueue", which costs 30 to
60 us for each loop and serves one Python thread at a time; a notice says so, because
small tensors become much slower with it. `fast_ops/team.py` says what a child of fork()
does, and when.
"""

from __future__ import annotations

import importlib
import warnings

import numba
import numpy as np

from fast_ops.launch import kernel


@kernel(parallel=True)
def _touch(a: np.ndarray) -> None:
    """a[i] = i; starts the threads, so that Numba chooses a layer."""
    for i in numba.prange(a.size):
        a[i] = i


def set_num_threads(n: int) -> None:
    """Let kernels use `n` threads, from 1 to the number Numba started with.

    Raises:
        TypeError: n is no int.
        ValueError: n is below 1 or above `max_num_threads()`.
    """
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads: n is {n!r}; expected an int")
    if not 1 <= n <= max_num_threads():
        raise ValueError(
            f"set_num_threads: n is {n}; expected 1 to {max_num_threads()} (set the "
            f"environment variable NUMBA_NUM_THREADS before the start for more)"
        )
    numba.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads the kernels use."""
    return numba.get_num_threads()


def max_num_threads() -> int:
    """How many threads the kernels can use at most."""
    return numba.config.NUMBA_NUM_THREADS


def threading_layer() -> str:
    """ "omp", "tbb" or "workqueue"; starts the threads if they have not started."""
    try:
        return numba.threading_layer()
    except ValueError:  # nothing ran in parallel so far
        _touch(np.empty(max_num_threads(), np.int64))
        return numba.threading_layer()


def has_fast_threads() -> bool:
    """Whether OpenMP or TBB threads can be loaded (asks without starting them)."""
    for module in ("omppool", "tbbpool"):
        try:
            importlib.import_module(f"numba.np.ufunc.{module}")
        except ImportError:
            continue
        return True
    return False


def warn_if_slow() -> None:
    """Warn where only Numba's own threads exist."""
    if not has_fast_threads():
        warnings.warn(
            'fast_ops: Numba found only its "workqueue" threads, which wake slowly (30 '
            "to 60 us for each parallel loop). Install OpenMP (package libgomp1) or "
            "TBB (pip install tbb) for faster kernels",
            RuntimeWarning,
            stacklevel=2,
        )
