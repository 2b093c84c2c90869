"""Pictures of the handouts and of the book, drawn by programs that run the library.

With this package one can make all pictures again, or see which have changed:

    python -m assignments.pictures            # writes the files
    python -m assignments.pictures --check    # names those that differ

`@picture("assignments/a1_scalar_autodiff/graph")` stands above a function that computes
with the library and returns a scene (`minitorch/scenes.py`). What a picture says to
those who do not see it stands in the page that shows it, `![a graph ...](graph.svg)`,
and is taken from there into the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from os.path import normpath
from pathlib import Path

from assignments.catalog import LIBRARY
from minitorch.scenes import Scene, render

PLAIN = (
    "scalars", "tensors", "cpu", "sparse", "networks", "language", "low_precision",
    "ranks", "training", "compiler", "alignment", "data", "scaling", "compression",
    "serving",
)  # fmt: skip
# These watch kernels in Numba's simulator, which is a part of numba-cuda.
SIMULATED = ("gpu", "puzzles", "benches")

drawn: dict[str, Callable[[], Scene]] = {}


def picture(name: str) -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    """Register a function that makes a scene, for the file `name`.svg."""

    def register(make: Callable[[], Scene]) -> Callable[[], Scene]:
        drawn[name] = make
        return make

    return register


def programs() -> dict[Path, Callable[[], Scene]]:
    """What draws each picture that can be drawn here, by its file."""
    for module in PLAIN + (SIMULATED if find_spec("numba_cuda") else ()):
        import_module(f"assignments.pictures.{module}")
    return {LIBRARY / f"{name}.svg": make for name, make in drawn.items()}


def pictures() -> dict[Path, str]:
    """The text of each picture that can be drawn here, by its file."""
    texts, found = said(), {}
    for path, make in programs().items():
        scene = json.loads(json.dumps(make()))  # an error where it is no plain data
        found[path] = render(scene, texts[path])
    return found


def said() -> dict[Path, str]:
    """What handouts and book say of the SVG files that they show."""
    found = {}
    pages = [
        page
        for place in ("assignments/*/README.md", "docs/*.md", "docs/book/*.md")
        for page in sorted(LIBRARY.glob(place))  # where two show one, the later says it
    ]
    for page in pages:
        for text, path in re.findall(r"!\[([^]]*)\]\(([^)]+\.svg)\)", page.read_text()):
            found[Path(normpath(page.parent / path))] = " ".join(text.split())
    return found
