"""Rows of the pages with measurements that stand in chapters, too.

With this file a chapter quotes a few rows, and they stay those of the page: above its
table stands `<!-- rows of docs/bench_gpu.md -->`, and a row is known by its first cell
(the first one on the page, if there are several).
"""

from __future__ import annotations

import re
from pathlib import Path

from assignments.catalog import LIBRARY

TABLE = re.compile(r"(<!-- rows of (\S+) -->\n\| .*\n\| --.*\n)((?:\| .*\n)+)")


def tables() -> dict[Path, str]:
    """What each page that quotes rows ought to say, by its file.

    Errors: ValueError for a row that the quoted page does not have.
    """
    found = {}
    for place in ("assignments/*/README.md", "docs/*.md", "docs/book/*.md"):
        for page in LIBRARY.glob(place):
            text = page.read_text()
            if TABLE.search(text):
                found[page] = TABLE.sub(anew, text)
    return found


def anew(table: re.Match[str]) -> str:
    """A quoted table with the rows as they stand in its page now."""
    head, page, old = table.groups()
    rows = re.findall(r"^(\| (.*?) \| .*\n)", (LIBRARY / page).read_text(), re.M)
    by_name = {name: row for row, name in reversed(rows)}
    for name in re.findall(r"^\| (.*?) \|", old, re.M):
        if name not in by_name:
            raise ValueError(f"tables: {page} has no row {name!r} any more")
        head += by_name[name]
    return head
