"""The backends that are installed, by the names of their devices.

With this file one can get the backend of a device (`get_backend("cpu")`), list the
devices (`available_devices`), and compare the names of devices (`full_name`). A
backend's module is imported when a tensor first asks for its device.

A device's name is a kind, and a number where there are several of a kind: "cuda" is the
one that is current when the name is used, "cuda:1" always the same. Tensors have names
of the second sort, wherever their kind has numbers.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, cast

from minitorch.backend.base import Backend
from minitorch.backend.low_precision import LowPrecision

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class _HalfBackends(dict[str, Backend]):
    """The functions of each device for half types, made at the first request."""

    def __missing__(self, device: str) -> Backend:
        get_backend(device)  # or an error
        with _lock:
            made = self[device] = _wrapped(_half(device))
        return made


GROUP = "minitorch.backends"
loaded_backends: dict[str, Backend] = {}  # what callers get
half_backends = _HalfBackends()  # what callers get for tensors of half types
_kinds: dict[str, Backend] = {}  # by kind, without what anybody puts around them


class _Seam:
    wrap: Callable[[Backend], Backend] | None = None
    users = 0  # blocks of `between`, in all threads


_seam = _Seam()
_lock = threading.RLock()  # to be had where what callers get changes
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire,
        after_in_parent=_lock.release,
        after_in_child=_lock.release,
    )


def install(extra: str) -> str:
    """The command that installs an extra, for users of a wheel and of a clone."""
    return f"pip install 'minitorch[{extra}]' (in a clone: pip install -e '.[{extra}]')"


# What to do about a device that cannot be loaded, by the module that is missing.
_CUDA = (
    f"{install('cuda13')}, or [cuda12] for older drivers; the simulator needs it, too"
)
_HINTS = {
    "numba": "pip install numba",
    "cuda_ops": "this installation has no CUDA backend",
    "numba_cuda": _CUDA,
    "cuda": _CUDA,
    "greenlet": _CUDA,
    "cuda device": "run on a machine with an NVIDIA GPU and its driver (Google Colab "
    "lends one), or set NUMBA_ENABLE_CUDASIM=1 to use Numba's slow simulator",
    "mojo_ops": "this installation has no Mojo backend",
    "mojo": install("mojo"),
    "mojo platform": 'use the device "cpu" here; Mojo runs on Linux with glibc 2.34 or '
    "newer (on Windows: in WSL) and on macOS with Apple silicon",
}


@lru_cache(maxsize=1)
def _registered(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The entry points of all backends in these folders, by device name. To look into
    200 packages takes 7 ms, and autocast asks twice a step."""
    from importlib.metadata import entry_points  # takes 20 ms to import

    return {point.name: point for point in entry_points(group=GROUP)}


def available_devices() -> list[str]:
    """The device names of all installed backends (not all may load)."""
    return sorted(_registered(tuple(sys.path)))


def get_backend(device: str) -> Backend:
    """The backend of `device`, loaded at the first call.

    Raises:
        ValueError: no backend is registered under that name, or none has that number.
        RuntimeError: the backend is registered but cannot be loaded here.
    """
    return loaded_backends.get(device) or _find(str(device))


def _find(device: str) -> Backend:
    """The same for a name that is new, or spelled in another way."""
    kind, index = split_name(device)
    made = _kinds.get(kind) or _load(kind)
    with _lock:
        if kind not in _kinds:
            _kinds[kind] = made
            loaded_backends[kind] = _wrapped(made)
        if index is not None:
            loaded_backends[device] = _kinds[kind].at(index, loaded_backends[kind])
        return loaded_backends[device]


def split_name(device: str) -> tuple[str, int | None]:
    """The kind of a device, and its number: None where there is none in the name.

    Raises:
        ValueError: what is in the place of the number is none.
    """
    kind, colon, number = device.partition(":")
    if colon and not number.isdecimal():
        raise ValueError(
            f"device: got {device!r}; expected a name, or a name and a number such as "
            f"'{kind}:0'"
        )
    return kind, int(number) if colon else None


def full_name(device: str) -> str:
    """A name that no other device has, and no other name of the device.

    "cuda" is "cuda:0" if that is the current one, and "cpu:0" is "cpu".
    """
    kind, _, number = str(device).partition(":")
    backend = _kinds.get(kind)
    current = None if backend is None else backend.current_index()
    if current is None:
        return kind if number in ("", "0") else str(device)
    return f"{kind}:{number or current}"


def _wrapped(backend: Backend) -> Backend:
    return backend if _seam.wrap is None else _seam.wrap(backend)


@cache
def _half(device: str) -> Backend:
    """The functions of a device that is loaded, for half types."""
    kind, index = split_name(device)
    backend = _kinds[kind]
    backend = backend if index is None else backend.at(index, backend)
    return cast(Backend, LowPrecision(backend))


def renew() -> None:
    """Let everybody get new backends, since something about them has changed."""
    with _lock:
        _half.cache_clear()
        _wrap_anew()


def _wrap_anew() -> None:
    """Let everybody get backends as `_seam` has it: other threads find one at every
    moment. Whoever calls this has the lock."""
    loaded_backends.update({kind: _wrapped(made) for kind, made in _kinds.items()})
    for device in loaded_backends.keys() - _kinds.keys():
        del loaded_backends[device]
    half_backends.clear()


@contextmanager
def between(wrap: Callable[[Backend], Backend]) -> Iterator[None]:
    """Let everybody get `wrap(backend)` in the place of each backend, for a block.

    Blocks in several threads, and within each other, share one `wrap`.
    """
    with _lock:
        _seam.users += 1
        if _seam.users == 1:
            _seam.wrap = wrap
            _wrap_anew()
    try:
        yield
    finally:
        with _lock:
            _seam.users -= 1
            if _seam.users == 0:
                _seam.wrap = None
                _wrap_anew()


def _load(device: str) -> Backend:
    points = _registered(tuple(sys.path))
    if device not in points:
        raise ValueError(
            f"device: there is no device {device!r}; installed are "
            f"{', '.join(map(repr, sorted(points))) or 'none (run: pip install -e .)'}"
        )
    try:
        return points[device].load()()
    except ImportError as error:
        hint = _HINTS.get((error.name or "").split(".")[0], "reinstall its package")
        raise RuntimeError(
            f"device {device!r} cannot be used here: {error}. What to do: {hint}"
        ) from error
