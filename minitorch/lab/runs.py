"""The page "Runs": training runs side by side, also while they train.

With this file one can compare the runs that `minitorch runs` finds (`RunsPage`): their
curves over steps, seconds or tokens, and the settings in which they differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from minitorch.cli.runs import (
    BEST,
    PLACES,
    OldRun,
    differences,
    read_run,
    run_files,
    setting_text,
    usual_metric,
)  # fmt: skip
from minitorch.lab.questions import choice, text

AXES = ("steps", "seconds", "tokens")
MOST_RUNS, MOST_POINTS = 12, 600  # points of a curve
LOOK_EVERY = 0.5  # seconds
FRESH = 10.0  # seconds after which a run that writes nothing trains no more


def curve(run: OldRun, metric: str, by: str) -> dict[str, Any]:
    """What is drawn of a run, thinned out, with the last and the best of all."""
    x, y = run.values(metric, by)
    every = max(1, -(-len(x) // MOST_POINTS))
    kept = slice((len(x) - 1) % every, None, every)  # with the last one
    best = BEST.get("test_" + metric.rpartition("_")[2])  # of any loss or accuracy
    return {
        "name": run.name,
        "x": x[kept],
        "y": y[kept],
        "last": y[-1] if y else None,
        "best": best(y) if y and best else None,
    }


def settings_of(found: Sequence[OldRun]) -> list[dict[str, Any]]:
    """For each setting its value in each run, and whether they differ."""
    names = dict.fromkeys(n for run in found for n in run.settings if n not in PLACES)
    differ = differences(found)
    return [
        {
            "name": name,
            "values": [setting_text(run.settings.get(name)) for run in found],
            "differs": name in differ,
        }
        for name in names
    ]


class RunsPage:
    """What answers for the page; `folders`: runs, or folders of runs."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self.questions = {"compare": self.compare}
        self._read: dict[Path, tuple[Any, OldRun]] = {}  # as files were at a time

    def compare(self, question: dict[str, Any]) -> dict[str, Any]:
        """Curves of one metric, and settings, of the runs with these names; those that
        have gone are named.

        Raises:
            ValueError: no such axis, or nothing that is a list of names.
        """
        names, by = question.get("runs"), choice(question, "by", AXES)
        metric = text({"metric": "", **question}, "metric", 100)
        if not isinstance(names, list) or len(names) > MOST_RUNS:
            raise ValueError(f"runs: expected a list of at most {MOST_RUNS} names")
        known = {run.name: run for run, _ in self._all()[0]}
        found = [known[name] for name in map(str, names) if name in known]
        measured = {name for run in found for row in run.rows for name in row}
        measured -= {"step", "time", "epoch"}
        rest = sorted(measured - {*BEST})
        metrics = [name for name in (*BEST, *rest) if name in measured]
        metric = metric if metric in metrics else usual_metric(found)
        return {
            "metric": metric,
            "metrics": metrics,
            "curves": [curve(run, metric, by) for run in found],
            "settings": settings_of(found),
            "gone": [name for name in map(str, names) if name not in known],
        }

    def listen(self) -> Iterator[dict[str, Any] | None]:
        """All runs, whenever a file of one of them has changed."""
        told = None
        while True:
            news = self._news()
            yield news if news != told else None
            told = news
            time.sleep(LOOK_EVERY)

    def _news(self) -> dict[str, Any]:
        found, problem = self._all()
        rows = [
            {
                "name": run.name,
                "steps": max((row["step"] for row in run.rows), default=0),
                "written": written,
                "trains": time.time() - written < FRESH,
                "problem": run.problem,
            }
            for run, written in found
        ]
        return {"runs": rows, "problem": problem}

    def _all(self) -> tuple[list[tuple[OldRun, float]], str]:
        try:
            return list(self._found()), ""
        except ValueError as error:  # there is none
            return [], str(error)

    def _found(self) -> Iterator[tuple[OldRun, float]]:
        """The runs that are there, and when each has written; read when they change."""
        for file in run_files(self.folders):
            with suppress(FileNotFoundError):  # it went a moment ago
                facts = file.stat()
                other = file.with_name("config.json")
                chosen = other.stat().st_mtime_ns if other.exists() else 0
                stamp = facts.st_mtime_ns, facts.st_size, chosen
                if self._read.get(file, (None,))[0] != stamp:
                    self._read[file] = stamp, read_run(file)
                yield self._read[file][1], facts.st_mtime
