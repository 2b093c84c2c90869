"""Who is fastest: a page made from graded results.

With this file one can read the speeds in the `results.json` of many submissions
(`read`) and make one HTML file of them that needs nothing else (`page`): a table for
each measured function, with the fastest first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from assignments import catalog
from assignments.grading.batch import RESULTS

DIGITS = 6  # of a submission's digest, which stand for its name


@dataclass(frozen=True)
class Entry:
    """A submission's speed in one check.

    Attributes:
        name: of the submission, or what stands for it.
        assignment, task, check, device: what was measured.
        ratio: how many times as fast as the reference.
        limit: the share of what the machine can do at most; None if it is not known.
    """

    name: str
    assignment: str
    task: str
    check: str
    device: str
    ratio: float
    limit: float | None


def read(folder: Path, anonymous: bool = False) -> list[Entry]:
    """The speeds in all results below a folder.

    Args:
        anonymous: take the first digits of a submission's digest for its name. Who has
            handed it in finds the digest in their own results.

    Raises:
        ValueError: there are none.
    """
    entries: list[Entry] = []
    for path in sorted(folder.rglob(RESULTS)):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["extra_data"]
            name = found["digest"][:DIGITS] if anonymous else path.parent.name
            entries += _entries(name, found)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"leaderboard: {path} is no result: {error!r}") from None
    if not entries:
        raise ValueError(
            f"leaderboard: no {RESULTS} in {folder} has a measured speed; expected "
            f"what `minitorch grade-all` has written for an assignment with speed"
        )
    return entries


def _entries(name: str, found: Mapping[str, Any]) -> list[Entry]:
    return [
        Entry(
            *(name, found["assignment"], check["task"], check["check"]),
            *(check["device"], float(check["ratio"]), check.get("limit")),
        )
        for check in found["checks"]
        if "ratio" in check
    ]


# ----------------------------------------------------------------------------- page

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5d6778; --line: #e3e7ee;
  --page: #f6f7f9; --card: #ffffff; --bar: #4c78d0; --first: #d99a1c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf0; --soft: #98a2b3;
  --line: #2c3442; --page: #12161d; --card: #1a202a; --bar: #6f98e8;
  --first: #e8b548; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 3rem 1.25rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.9rem; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.1rem; margin: 0; }
p { color: var(--soft); margin: 0 0 1.5rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 1.1rem 1.25rem; margin: 0 0 1.25rem; }
section p { margin: 0 0 .5rem; font-size: .875rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; font-size: .8rem; color: var(--soft); }
th, td { padding: .4rem .5rem; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
.rank { width: 2.5rem; color: var(--soft); }
.number { text-align: right; white-space: nowrap; width: 6.5rem; }
.name { overflow-wrap: anywhere; }
.bar { width: 38%; }
.bar span { display: block; height: .6rem; border-radius: .3rem;
  background: var(--bar); }
tr.first .bar span { background: var(--first); }
tr.first .name, tr.first .number { font-weight: 600; }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>Times as fast as the reference, on the same inputs, in turns. Every output of a timed
call was checked.</p>
{sections}
</body>
</html>
"""

SECTION = """<section>
<h2>{title}</h2>
<p>{place}</p>
<table>
<thead><tr><th class="rank">#</th><th>name</th><th></th>
<th class="number">times as fast</th><th class="number">of the limit</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</section>"""

ROW = (
    '<tr{first}><td class="rank">{rank}</td><td class="name">{name}</td>'
    '<td class="bar"><span style="width: {width:.1f}%"></span></td>'
    '<td class="number">{ratio:.2f}</td><td class="number">{limit}</td></tr>'
)


def page(entries: Sequence[Entry]) -> str:
    """One HTML file with a table for each check, all names and titles escaped."""
    tables: dict[tuple[str, str, str, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.assignment, entry.task)):
        key = entry.assignment, entry.task, entry.check, entry.device
        tables.setdefault(key, []).append(entry)
    names = ", ".join(dict.fromkeys(_title(key[0]) for key in tables))
    sections = "\n".join(_section(*key, rows) for key, rows in tables.items())
    title = escape(f"Leaderboard: {names}")
    return PAGE.format(title=title, style=STYLE, sections=sections)


def _title(assignment: str) -> str:
    """ "a3 Parallel CPU", or the id alone of an assignment that is not here."""
    found = [a for a in catalog.load_all() if a.id == assignment]
    return f"{assignment} {found[0].title}" if found else assignment


def _section(
    assignment: str, task: str, check: str, device: str, entries: Sequence[Entry]
) -> str:
    ranked = sorted(entries, key=lambda entry: (-entry.ratio, entry.name))
    rows = [_row(ranked, place) for place in range(len(ranked))]
    return SECTION.format(
        title=escape(check), place=escape(f"{task} on {device}"), rows="\n".join(rows)
    )


def _row(ranked: Sequence[Entry], place: int) -> str:
    """A line; equal speeds, as they are printed, have equal ranks."""
    entry, shown = ranked[place], [f"{entry.ratio:.2f}" for entry in ranked]
    rank = shown.index(shown[place]) + 1
    return ROW.format(
        first=' class="first"' if rank == 1 else "",
        rank=rank,
        name=escape(entry.name),
        width=100 * entry.ratio / ranked[0].ratio if ranked[0].ratio else 0,
        ratio=entry.ratio,
        limit="" if entry.limit is None else f"{entry.limit:.0%}",
    )
