"""Say what a run will come to, before anybody makes it.

With this file one can ask rows of small runs for the loss of a larger one (`forecast`),
and see how near that comes, in `python forecast.py`: it has the rows of `runs.csv`, and
foretells each budget from those below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minitorch.scaling import Run, fit_law, read_runs

ROWS = Path(__file__).with_name("runs.csv")


def forecast(runs: Sequence[Run], N: float, D: float) -> float:
    """The loss that a model of N parameters will have after D tokens.

    Args:
        runs: made with smaller budgets; not all of them need be good to learn from.
    """
    # BEGIN SOLUTION a16.5
    begun = [run for run in runs if run.steps >= 1000]
    return float(fit_law(*columns(begun))(N, D))
    # END SOLUTION a16.5


def columns(runs: Sequence[Run]) -> tuple[np.ndarray, ...]:
    """N, D and loss of some runs, each float64 [n]."""
    return tuple(np.array([(r.N, r.D, r.loss) for r in runs], np.float64).T)


def main() -> None:
    """Print what is foretold, and what came."""
    runs = read_runs(ROWS)
    print("|    budget |      N |         D | foretold |   came |")
    for budget in sorted({run.budget for run in runs})[2:]:
        small = [run for run in runs if run.budget < budget]
        for run in (r for r in runs if r.budget == budget):
            said = forecast(small, run.N, run.D)
            print(
                f"| {budget:9g} | {run.N:6,} | {run.D:9,} | {said:8.4f} | "
                f"{run.loss:.4f} |"
            )


if __name__ == "__main__":
    main()
