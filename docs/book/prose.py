"""Docstrings are prose for people; Sphinx reads reStructuredText.

With this file the book shows docstrings as they are meant: `names` in backticks are
code, indented blocks and tables by spaces stay as they are, and nothing else is markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

SECTIONS = re.compile(
    r"(Args|Arguments|Attributes|Raises|Returns|Yields|Example|Examples|Note):$"
)
NAMES = re.compile(r"^ +[\w\\]+(, [\w\\]+)+(?=: )")  # underscores come with a backslash
TABLE = re.compile(r"\S {3,}\S")


def restructured(lines: list[str]) -> Iterator[str]:
    """The lines of a docstring in reStructuredText; napoleon reads its sections."""
    for block in _blocks(lines):
        if SECTIONS.match(block[0]):
            for line in _plain(block):  # "lr, min_lr: ..." is no name with a type
                yield NAMES.sub(lambda found: found[0].replace(", ", ",\u200b"), line)
        elif block[0].startswith(">>>"):
            yield from block
        elif block[0].startswith(" ") or any(TABLE.search(line) for line in block):
            yield from ("::", "", *(f"    {line}" for line in block))
        else:
            yield from _plain(block)
        yield ""


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs; what is indented belongs together, and to a section above it."""
    block: list[str] = []
    for line in lines:
        indented = line.startswith(" ")
        begins = not line or (block and not block[-1])
        goes_on = block and (block[0].startswith(" ") or SECTIONS.match(block[0]))
        if block and begins and not (goes_on and (indented or not line)):
            yield _trimmed(block)
            block = []
        if line or block:
            block.append(line)
    if block:
        yield _trimmed(block)


def _trimmed(block: list[str]) -> list[str]:
    while not block[-1]:
        block.pop()
    return block


def _plain(block: list[str]) -> list[str]:
    """Prose: code in backticks, and no character that means something."""
    parts = re.split(r"(`+[^`]+`+)", "\n".join(block))
    for i, part in enumerate(parts):
        if i % 2:  # "`Tensor`s" is code and a letter, with nothing to see between them
            after = "\\ " if parts[i + 1][:1].isalnum() else ""
            parts[i] = f"``{part.strip('`')}``{after}"
        else:
            parts[i] = re.sub(r"([\\*|_`])", r"\\\1", part)
    text = "".join(parts)
    return text.split("\n")


def setup(app: Any) -> None:
    """Called by Sphinx."""

    def process(
        app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]
    ) -> None:
        lines[:] = restructured(lines)

    app.connect("autodoc-process-docstring", process, priority=100)
