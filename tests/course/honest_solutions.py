"""Right solutions in other words than the library's, which the reader has to allow.

With this file a test has all of `honest/aN.txt` (`HONEST`), and a workspace's files
with one of them in the place of the library's solution (`with_variant`).

    == a3.1 fast_ops/elementwise.py: what is different
    -- map_flat                    the lines in the place of this function's region
    ...
    -- top                         what is added behind the imports
    ...
    -- in Module                   what is added to a class
    ...
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

from course.solutions import reference

from assignments import catalog
from assignments.catalog import Assignment, File
from assignments.regions import strip

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Variant:
    """A right solution of a part of a task.

    Attributes:
        task: which it is for, "a3.1".
        path: the file that it changes.
        what: is different.
        sections: where, and what stands there.
    """

    name: str
    task: str
    path: str
    what: str
    sections: tuple[tuple[str, str], ...]

    @property
    def assignment(self) -> Assignment:
        return catalog.load(self.task.partition(".")[0])

    @property
    def file(self) -> File:
        return next(f for f in self.assignment.files if f.path == self.path)


def _read(path: Path) -> list[Variant]:
    found = []
    for number, block in enumerate(f"\n{path.read_text()}".split("\n== ")[1:], 1):
        head, _, rest = block.partition("\n")
        place, _, what = head.partition(": ")
        task, _, file = place.partition(" ")
        pairs = [part.partition("\n")[::2] for part in f"\n{rest}".split("\n-- ")[1:]]
        name = f"{path.stem}-{number}"
        found.append(Variant(name, task, file, what, tuple(pairs)))
    return found


HONEST = [v for path in sorted(HERE.glob("honest/*.txt")) for v in _read(path)]


def with_variant(variant: Variant) -> dict[str, str]:
    """The library's files, one of them with the variant."""
    texts = reference(variant.assignment)
    texts[variant.path] = text_of(variant)
    return texts


def text_of(variant: Variant) -> str:
    """The library's file with the variant in it, without markers."""
    file = variant.file
    source = file.source.read_text()
    lines = source.splitlines()
    cuts = {cut.function: cut for r in file.regions() for cut in r.cuts}
    edits = []
    for place, text in variant.sections:
        if place in cuts:
            cut = cuts[place]
            first, last, indent = cut.first, cut.last, cut.indent
        else:
            first = last = _line(ast.parse(source), place)
            indent = 4 if place.startswith("in ") else 0
        edits.append((first, last, textwrap.indent(text, " " * indent)))
    for first, last, text in sorted(edits, key=lambda e: e[0], reverse=True):
        lines[first:last] = text.rstrip().splitlines()
    return strip("\n".join(lines) + "\n", file.path, ())


def _line(tree: ast.Module, place: str) -> int:
    """The line behind the imports ("top"), or at the end of a class ("in Module")."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and place == f"in {node.name}":
            return node.end_lineno or 0
    assert place == "top", place
    imports = (ast.Import, ast.ImportFrom)
    return max(n.end_lineno or 0 for n in tree.body if isinstance(n, imports))
