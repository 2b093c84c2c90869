"""Grade a folder of submissions.

With this file one can grade many submissions at a time (`grade_all`), stop and go on
later, and have a table of the grades. Each submission has a folder with its
`results.json` and `junit.xml`; whoever has one is not graded again, unless the
submission or the way of grading has changed.

`python -m assignments.grading.batch a3` grades nothing: it compiles what the library's
own solutions need, before the first submission comes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from pathlib import Path

from assignments import catalog
from assignments.grading import library
from assignments.grading import report as reports
from assignments.grading.grade import Grader, Report, compile_ahead
from minitorch.data import atomic_write

FEW = 3  # submissions for which it does not pay to run the library's solutions first
TABLE, STATE, RESULTS, JUNIT = "grades.csv", "state.json", "results.json", "junit.xml"
FAILURE = "the grader failed"
CELL = 300  # characters of the table, of an error that may be long


@dataclass(frozen=True)
class Entry:
    """One line of the table.

    Attributes:
        name: of the submission, to print.
        header, cells: names and contents of its columns.
        again: whether it was graded now, not earlier.
    """

    name: str
    header: list[str]
    cells: list[str]
    again: bool

    @property
    def failed(self) -> bool:
        """Whether the grader itself failed, so that the points say nothing."""
        return dict(zip(self.header, self.cells))["status"].startswith(FAILURE)


def submissions(folder: Path) -> list[Path]:
    """The folders and zips in a folder, in the order of their names."""
    found = [
        path
        for path in folder.iterdir()
        if not path.name.startswith(".")
        and (path.suffix.lower() == ".zip" or path.is_dir())
    ]
    return sorted(found, key=lambda path: path.name)


def left_out(folder: Path) -> set[str]:
    """The names of what is in a folder and no submission."""
    seen = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    return seen - {path.name for path in submissions(folder)}


def place(out: Path, name: str) -> Path:
    """The folder for a submission's results.

    Its own name, where that is plain. Others are told apart by a digest: students name
    what they hand in, with line ends and control characters if they want to.
    """
    if re.fullmatch(r"\w[\w .,@+()-]{0,99}", name, re.ASCII) and name != TABLE:
        return out / name
    digest = hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()
    return out / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:50]}%{digest}"


def grade_all(
    grader: Grader,
    folder: Path,
    out: Path,
    jobs: int = 1,
    done: Callable[[Entry], None] | None = None,
) -> list[Entry]:
    """Grade all submissions of a folder; write their results and a table of them.

    Args:
        folder: with a folder or a zip for each submission.
        out: for the results; what is there already is not done again.
        jobs: how many to grade at the same time.
        done: called for each submission, in the order in which they get ready.
    """
    if jobs < 1:
        raise ValueError(f"grade-all: --jobs is {jobs}; it must be at least 1")
    paths = submissions(folder)
    if not paths:
        raise ValueError(f"grade-all: {folder} has neither folders nor zips")
    out.mkdir(parents=True, exist_ok=True)
    if sum(not (place(out, path.name) / STATE).exists() for path in paths) > FEW:
        compile_ahead(grader.assignment)
    entries: dict[Path, Entry] = {}
    with ThreadPoolExecutor(jobs) as pool:
        # The first one builds what all share, the library without the solutions.
        running = {pool.submit(_one, grader, paths[0], out): paths[0]}
        try:
            wait(running)
            running |= {
                pool.submit(_one, grader, path, out): path for path in paths[1:]
            }
            for future in as_completed(running):
                entry = future.result()
                entries[running[future]] = entry
                write_table(out, entries.values())
                if done is not None:
                    done(entry)
        except BaseException:
            # Those that have begun are ended by their workers' time limits.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [entries[path] for path in paths]


def _one(grader: Grader, path: Path, out: Path) -> Entry:
    """Grade a submission; what goes wrong in the grader costs nobody else a grade."""
    try:
        return _graded(grader, path, place(out, path.name))
    except Exception as error:
        why = f"{FAILURE}: {type(error).__name__}: {error}"
        found = Report(
            *(grader.assignment, path.name, "", grader.mode, ()),
            problem=FAILURE,
            failure=traceback.format_exc(limit=-5),
        )
    try:
        write(found, place(out, path.name))
    except OSError:
        pass  # the row is there all the same
    header, cells = reports.columns(found), reports.row(found)
    cells[header.index("status")] = reports.safe_cell(why[:CELL])
    return Entry(reports.label(path.name), header, cells, again=True)


def _graded(grader: Grader, path: Path, target: Path) -> Entry:
    """Grade a submission, or take the result that is there."""
    taken = grader.read(path)
    text = f"{taken.digest} {grader.mode} {grader.seed(taken.digest)}"
    marked = taken.answers or grader.settings.marks.get(path.name)
    text += f" {grader.answers(path.name, taken)}" if marked else ""
    mark = hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()
    name = reports.label(path.name)
    try:
        state = json.loads((target / STATE).read_text())
        if state["mark"] == mark:
            return Entry(name, state["header"], state["cells"], again=False)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not graded yet, or not to the end
    found = grader.grade_intake(path.name, taken)
    write(found, target)
    header, cells = reports.columns(found), reports.row(found)
    # What was too noisy to judge is graded again the next time.
    state = {"mark": "" if found.unjudged else mark, "header": header, "cells": cells}
    _write(target / STATE, json.dumps(state, indent=1))
    return Entry(name, header, cells, again=True)


def write(report: Report, folder: Path) -> None:
    """Write `results.json` and `junit.xml` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / RESULTS, reports.gradescope(report))
    _write(folder / JUNIT, reports.junit(report))


def write_table(out: Path, entries: Iterable[Entry]) -> None:
    """Write the table of those that are graded so far."""
    text = io.StringIO()
    rows = sorted(entries, key=lambda entry: entry.name)
    names = max((row.header for row in rows), key=len)
    table = csv.DictWriter(text, names, restval="", lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow(dict(zip(row.header, row.cells)))
    _write(out / TABLE, text.getvalue())


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode(errors="replace"))


if __name__ == "__main__":
    chosen = catalog.load(sys.argv[1])
    compile_ahead(chosen)
    library.kernels(chosen, None)  # Mojo's as well
