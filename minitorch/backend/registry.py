"""The backends that are installed, by the names of their devices.

With this file one can get the backend of a device (`get_backend("cpu")`) and list the
devices (`available_devices`). A backend's module is imported when a tensor first asks
for its device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from minitorch.backend.base import Backend

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "minitorch.backends"
loaded_backends: dict[str, Backend] = {}  # what callers get
_bare: dict[str, Backend] = {}  # the same, without what an executor puts around them


class _Seam:
    wrap: Callable[[Backend], Backend] | None = None


_seam = _Seam()

# What to do about a device that cannot be loaded, by the module that is missing.
_HINTS = {
    "numba": "pip install numba",
    "cuda_ops": "this installation has no CUDA backend",
    "numba_cuda": "pip install -e '.[cuda13]' (or [cuda12], for older drivers)",
    "cuda": "pip install -e '.[cuda13]' (or [cuda12], for older drivers)",
    "cuda device": "run on a machine with an NVIDIA GPU and its driver (Google Colab "
    "lends one), or set NUMBA_ENABLE_CUDASIM=1 to use Numba's slow simulator",
    "mojo_ops": "this installation has no Mojo backend",
    "mojo": "pip install 'minitorch[mojo]' (in a clone: pip install -e '.[mojo]')",
    "mojo platform": 'use the device "cpu" here; Mojo runs on Linux with glibc 2.34 or '
    "newer (on Windows: in WSL) and on macOS with Apple silicon",
}


def _registered() -> dict[str, EntryPoint]:
    """The entry points of all installed backends, by device name."""
    from importlib.metadata import entry_points  # takes 20 ms to import

    return {point.name: point for point in entry_points(group=GROUP)}


def available_devices() -> list[str]:
    """The device names of all installed backends (not all may load)."""
    return sorted(_registered())


def get_backend(device: str) -> Backend:
    """The backend of `device`, loaded at the first call.

    Raises:
        ValueError: no backend is registered under that name.
        RuntimeError: the backend is registered but cannot be loaded here.
    """
    backend = loaded_backends.get(device)
    if backend is None:
        backend = _bare[device] = _load(device)
        if _seam.wrap is not None:
            backend = _seam.wrap(backend)
        loaded_backends[device] = backend
    return backend


@contextmanager
def between(wrap: Callable[[Backend], Backend]) -> Iterator[None]:
    """Let everybody get `wrap(backend)` in the place of each backend, for a block."""
    _seam.wrap = wrap
    loaded_backends.update({device: wrap(bare) for device, bare in _bare.items()})
    try:
        yield
    finally:
        _seam.wrap = None
        loaded_backends.update(_bare)


def _load(device: str) -> Backend:
    points = _registered()
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
