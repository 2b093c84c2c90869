"""Call Mojo kernels as Python functions.

With this file a launcher can call what a `.mojo` file exports:

    kernels = Library("elementwise")
    kernels.zip_flat(row, a, b, out)

and one can set the number of threads (`set_num_threads`). A kernel takes ints, floats,
strings and NumPy arrays, and reads them where they are: no array is copied, and its
address is looked up by the kernel, in the array object (`.ctypes.data` would take ten
times as long as a whole call). A call costs about 0.06 us.

Each kernel is a C function of the form that Python calls fastest (METH_FASTCALL); its
`self` is the array of words that the threads share (`parallel.mojo`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from mojo_ops.build import built, load_runtime

METH_FASTCALL = 0x80
# Where an array object keeps the addresses of its data, its sizes and its dtype, and
# where that keeps its number; as in bridge.mojo.
DATA, SIZES, ELEMENTS, NUMBER = 16, 32, 56, 28
TEAM_WORDS = 128
THREADS = 0  # the word that says how many threads take part, as in parallel.mojo


class _Method(ctypes.Structure):
    """Python's PyMethodDef: how an extension module describes a function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = (ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p)


# -------------------------------------------------------------------------- the threads


def _aligned_words(count: int) -> np.ndarray:
    """Zeros from the start of a cache line on."""
    room = np.zeros(count + 8, np.int64)
    skip = -room.ctypes.data % 64 // 8
    return room[skip : skip + count]


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


team = _aligned_words(TEAM_WORDS)
team[THREADS] = _cores()


def set_num_threads(n: int) -> None:
    """Let kernels use `n` threads, 1 or more."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"set_num_threads: n is {n!r}; expected an int of 1 or more")
    team[THREADS] = n


def get_num_threads() -> int:
    """How many threads the kernels use."""
    return int(team[THREADS])


def _after_fork() -> None:
    """Forget the threads, which a child does not have; it starts its own."""
    threads = team[THREADS]
    team[:] = 0
    team[THREADS] = threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# -------------------------------------------------------------------------- the kernels


class Library:
    """The exported functions of one `.mojo` file, as attributes.

    The first use of any compiles and loads the file. An array tells its kernel how many
    elements it has, and of which type.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._loaded: ctypes.CDLL | None = None
        self._methods: list[_Method] = []  # Python functions point at them

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The function called `name`; asked once, an attribute from then on."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self._loaded is None:
            _verify_layout()
            load_runtime()
            self._loaded = ctypes.CDLL(str(built(self._module)))
        symbol = ctypes.cast(getattr(self._loaded, name), ctypes.c_void_p)
        method = _Method(name.encode(), symbol.value, METH_FASTCALL, None)
        self._methods.append(method)
        function = _new_function(ctypes.byref(method), team, None)
        setattr(self, name, function)
        return function


class FlatKernels(Library):
    """Exported functions as the launchers of `minitorch/backend/host` want them: twice.

    Those ask for a kernel for one thread or for all; one in Mojo decides by itself.
    """

    def __getattr__(self, name: str) -> Any:
        """The function called `name`, as both elements of a pair."""
        function = super().__getattr__(name)
        pair = self.__dict__[name] = function, function
        return pair


def _verify_layout() -> None:
    """An array object must have what kernels read where they look for it."""
    probe = np.empty(3, np.float32)
    data, sizes, dtype = (
        ctypes.c_void_p.from_address(id(probe) + at).value or 0
        for at in (DATA, SIZES, ELEMENTS)
    )
    found = (
        data == probe.ctypes.data
        and dtype == id(probe.dtype)
        and ctypes.c_int64.from_address(sizes).value == 3
        and ctypes.c_int32.from_address(dtype + NUMBER).value == probe.dtype.num
    )
    if not found:
        raise RuntimeError(
            "mojo_ops: this Python lays objects out in another way than kernels expect "
            "(a build without the global lock?); use the standard build, or the "
            'device "cpu"'
        )
