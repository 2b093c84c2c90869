"""Fit scaling laws to the rows of a file, and foretell its largest budget.

Run it: `python docs/scaling_laws.py` (seconds) for the rows of assignment a16, or with
a file that `python -m minitorch.bench.scaling` wrote. It prints the best size of each
budget and the laws of these, the law L(N, D) of the rows with enough steps and its
entropy beside the true one, and what that law, without the largest budget, says of the
runs with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from assignments.a16_scaling_laws.forecast import LAW, columns, measured
from minitorch.data import UrnText
from minitorch.scaling import (
    Law,
    Run,
    exponent_interval,
    fit_law,
    fit_power_law,
    isoflop_laws,
    isoflop_minimum,
    read_runs,
    resamples,
)


def law_of(runs: list[Run], steps: int) -> Law:
    """The law of the runs that took so many steps at least."""
    some = columns([run for run in runs if run.steps >= steps])
    return fit_law(*(some[name] for name in LAW))


def by_budget(runs: list[Run], entropy: float) -> None:
    """A table, and the power laws of what stands in it."""
    print("| budget | best run | parabola's N | loss | above the entropy |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    budgets, best = sorted({run.budget for run in runs}), []
    for budget in budgets:
        mine = [run for run in runs if run.budget == budget]
        low, rows = min(mine, key=lambda run: run.loss), columns(mine)
        best.append(low.loss - entropy)
        try:
            at = f"{isoflop_minimum(rows['N'], rows['loss'])[0]:,.0f}"
        except ValueError:
            at = "none"
        print(f"| {budget:g} | {low.N:,} | {at} | {low.loss:.4f} | {best[-1]:.4f} |")
    picks = resamples(len(best))
    low, high = exponent_interval(budgets, best, picks)
    slope = fit_power_law(budgets, best).exponent
    print(f"best loss - entropy ~ C ** {slope:.3f} ({low:.3f} to {high:.3f})")
    rows = columns(runs)
    try:
        n, d = isoflop_laws(rows["budget"], rows["N"], rows["loss"])
    except ValueError:
        print("less than two budgets have a minimum between their sizes: no law of N")
        return
    print(f"best N ~ C ** {n.exponent:.3f}, best D ~ C ** {d.exponent:.3f}")


def main(path: Path | None, steps: int) -> Law:
    """Print all that is known about the rows of a file; returns their law."""
    runs = read_runs(path) if path else measured()
    if len({run.budget for run in runs}) < 2:
        raise SystemExit(f"{path}: no rows, or one budget alone; expected two or more")
    entropy = UrnText(runs[0].vocab).entropy
    by_budget(runs, entropy)
    law = law_of(runs, steps)
    print(f"rows with {steps:,} steps or more: {law}")
    print(f"E {law.E:.4f}, the entropy is {entropy:.4f}")
    most = max(run.budget for run in runs)
    small = law_of([run for run in runs if run.budget < most], steps)
    print(f"\n| N, of {most:g} | D | foretold by the others | came |")
    print("| ---: | ---: | ---: | ---: |")
    for run in (run for run in runs if run.budget == most):
        said = float(small(run.N, run.D))
        print(f"| {run.N:,} | {run.D:,} | {said:.4f} | {run.loss:.4f} |")
    for budget in most * np.array([10.0, 100.0]):
        n, d = law.optimal(budget)
        print(f"C {budget:g}: N {n:,.0f}, D {d:,.0f}, loss {law(n, d):.4f}")
    return law


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--steps", type=int, default=1000, help="at least, of a run")
    main(**vars(parser.parse_args()))
