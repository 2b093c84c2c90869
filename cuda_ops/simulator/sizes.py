"""Tiles as large as on a GPU, in the simulator.

There some kernels have small tiles, since each thread takes time. These give the same
values, but other requests: 4 elements of a row are not what a warp asks for. With this
file one can run them at full size (`real_sizes`), to count what a GPU would count.
What a module makes of these sizes, as `PITCH = SIDE + 1`, is made anew.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

REAL = {
    "cuda_ops.ladders.matmul": {
        "SIDE": 32, "AREA": 1024, "HIGH": 8, "WIDE": 64, "DEEP": 8, "BLOCK_ROWS": 8,
        "SQUARE": 512, "THREADS": 512, "FEWER": 64, "EACH": 8, "OUTPUTS": 64,
        "SLOTS": 1024,
    },
}  # fmt: skip


@contextmanager
def real_sizes(module: str) -> Iterator[None]:
    """Give the kernels of a module (a key of `REAL`) the sizes that a GPU gets."""
    loaded = importlib.import_module(module)
    names = vars(loaded)
    sizes = {**_derived(loaded, REAL[module]), **REAL[module]}
    small = {name: names[name] for name in sizes if name in names}
    names.update(sizes)
    try:
        yield
    finally:
        names.update(small)


def _derived(module: ModuleType, real: dict[str, int]) -> dict[str, Any]:
    """The numbers that a module names and works out from those in `real`, or `TINY`."""
    known: dict[str, Any] = {"TINY": False, **real}
    found: dict[str, Any] = {}
    for line in ast.parse(inspect.getsource(module)).body:
        targets = line.targets if isinstance(line, ast.Assign) else []
        if isinstance(line, ast.AnnAssign) and line.value is not None:
            targets = [line.target]
        used = {part.id for part in ast.walk(line) if isinstance(part, ast.Name)}
        if targets and known.keys() & used and not known.keys() & _names(targets):
            made = {**vars(module), **known}
            exec(compile(ast.Module([line], []), module.__name__, "exec"), made)
            new = {name: made[name] for name in _names(targets)}
            if all(isinstance(value, (int, float, tuple)) for value in new.values()):
                known, found = {**known, **new}, {**found, **new}
    return found


def _names(targets: list[ast.expr]) -> set[str]:
    """The names that an assignment gives something to."""
    parts = [part for target in targets for part in ast.walk(target)]
    return {part.id for part in parts if isinstance(part, ast.Name)}
