"""Say what a run will come to, before anybody makes it.

With this file one can ask rows of small runs for the loss of a larger one (`forecast`),
and see how near that comes, by `python forecast.py`: it has the rows of `runs.csv`, and
foretells those of the largest budget from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minitorch.scaling import Run, fit_law, read_runs

LAW = ("N", "D", "loss")


def measured() -> list[Run]:
    """The rows of `runs.csv`, which lies in the library."""
    from assignments.catalog import FOLDER  # which a grader's process does not have

    return read_runs(FOLDER / "a16_scaling_laws" / "runs.csv")


def columns(runs: Sequence[Run]) -> dict[str, np.ndarray]:
    """The rows as arrays [n], by the names of `Run`."""
    return {name: np.array([getattr(r, name) for r in runs]) for name in Run._fields}


def forecast(rows: Mapping[str, np.ndarray], N: float, D: float) -> float:
    """The loss that a model of N parameters will have after D tokens.

    Args:
        rows: of runs with smaller budgets, see `columns`: rows["steps"], rows["loss"],
            ... [n]. Not all of them need be good to learn from.
    """
    # BEGIN SOLUTION a16.5
    begun = rows["steps"] >= 1000
    law = fit_law(*(rows[name][begun] for name in LAW))
    return float(law(N, D))
    # END SOLUTION a16.5


def main() -> None:
    """Print what is foretold, and what came."""
    runs = measured()
    print("|    budget |       N |          D | foretold |   came |")
    budget = max(run.budget for run in runs)  # of smaller ones, few rows are below
    small = columns([run for run in runs if run.budget < budget])
    for run in (r for r in runs if r.budget == budget):
        print(
            f"| {budget:9g} | {run.N:7,} | {run.D:10,} | "
            f"{forecast(small, run.N, run.D):8.4f} | {run.loss:.4f} |"
        )


if __name__ == "__main__":
    main()
