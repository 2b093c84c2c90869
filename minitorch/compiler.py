"""`minitorch.compile`, which does not compile yet.

With this file a PyTorch program that says `model = torch.compile(model)` runs: it gets
its model back, and is told once that it runs as it would without.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from minitorch.warn import warn


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The module or function itself, with a warning, once: there is no compiler yet.

    Results are those of the program without `compile`; only the time is not that of a
    compiled one. All options are PyTorch's, and choose how it compiles. Works as a
    decorator as well: `@compile`, `@compile(mode="max-autotune")`.

    Raises:
        TypeError: the model cannot be called.
    """
    if model is None:
        return lambda fn: compile(fn, disable=disable)
    if not callable(model):
        raise TypeError(
            f"compile: got a {type(model).__name__}; expected a module or a function"
        )
    if not disable:
        _tell()
    return model


@cache
def _tell() -> None:
    warn(
        "compile: there is no compiler yet; the module or function is returned as it "
        "is, and runs as it would without compile(). On a GPU, "
        "minitorch.cuda.make_graphed_step takes the launches of a step together"
    )
