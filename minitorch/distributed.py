"""Work on several devices or machines together, which is not here yet.

With this file a PyTorch program that can do without finds out (`is_available()` is
False), and one that cannot is told so by the first call (`init_process_group`).
"""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    """False: nothing here works on several devices together."""
    return False


def is_initialized() -> bool:
    """False: `init_process_group` cannot be called."""
    return False


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"{name}: training by several processes is not here yet; run the program in "
        f"one process, without torchrun (the variables RANK and WORLD_SIZE unset)"
    )


def init_process_group(backend: str | None = None, **options: Any) -> None:
    """Raises a RuntimeError: there are no groups of processes."""
    _refuse("init_process_group")


def destroy_process_group(group: Any = None) -> None:
    """Raises a RuntimeError: there are no groups of processes."""
    _refuse("destroy_process_group")
