"""Fit the planner's constants to measured runs, and judge them on others.

With this file one can see how good the predictions are for a table of measured runs
(`python -m minitorch.distributed.planner.calibrate measured.csv`), on runs that the
constants were not fitted to (`--folds`), and fit them again (`--fit`).

The table has the columns of shared/data/training_configs. Constants are found by going
through them again and again: one is made larger or smaller by some factor, and keeps
the value where the error, a mean over all rows of the fit, is least. No row counts
alone, and errors above MOST count as MOST: some runs were many times slower than others
of the same layout, which no column explains.
"""

from __future__ import annotations

import argparse
import csv
import math
import operator
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from minitorch.distributed.planner.cost import FITTED, Constants, Estimate, estimate
from minitorch.distributed.planner.hardware import GPUS
from minitorch.distributed.planner.layout import Layout
from minitorch.distributed.planner.memory import GIB, MEASURED, Engine
from minitorch.distributed.planner.models import Model

SEQUENCE, VOCABULARY, MOST, RIDGE = 4096, 131_072, 0.5, 1e-3
OF_MEMORY = ("hidden", "units", "gathered", "flight", "logits", "fixed")
OF_TIME = [field.name for field in fields(Constants) if field.name != "fault"]
# Where fits begin: round numbers.
FIRST_ENGINE = replace(
    MEASURED, hidden=30, units=6, gathered=2, flight=2, logits=10, fixed=GIB / 4
)
FIRST = Constants(
    products=0.6, half_width=50, scores=0.4, traffic=200, logit_traffic=50, host=4e-3,
    hop=4e-3, pipeline=2e-3, pipeline_power=1, link=0.8, gradients=0.5, ring=3e-5,
    update=100, stall=0.5, retry=0.5, fault=0.02,
)  # fmt: skip
MODELS = {
    "1B": Model("1B", 16, 2048, 8192, 32, 32, VOCABULARY, tied=True),
    "3B": Model("3B", 28, 3072, 8192, 32, 32, VOCABULARY, tied=True),
    "8B": Model("8B", 32, 4096, 14336, 32, 32, VOCABULARY),
    "80B": Model("80B", 80, 8192, 28672, 64, 64, VOCABULARY),
}


@dataclass(frozen=True)
class Run:
    """A measured run; a run that did not finish has 0 tokens a second."""

    model: str
    nodes: int
    layout: Layout
    tokens: float
    mfu: float
    memory: float

    def estimate(
        self, engine: Engine = MEASURED, constants: Constants = FITTED
    ) -> Estimate:
        """What the planner says of it."""
        model = MODELS[self.model]
        return estimate(model, GPUS["h100"], self.layout, SEQUENCE, engine, constants)


def load(path: str) -> list[Run]:
    """The runs of a table."""
    names = ("nodes", "dp", "tp", "pp", "zero", "micro_batch", "global_batch")
    seen, runs = ("tokens_per_s_per_gpu", "mfu_percent", "memory_gb"), []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            nodes, dp, tp, pp, zero, micro, batch = (int(row[name]) for name in names)
            # A few rows name another number of micro-batches than their batch makes.
            layout = Layout(dp, tp, pp, 1, zero, micro, max(1, batch // (dp * micro)))
            measured = (float(row[name] or 0) for name in seen)
            runs.append(Run(row["model"], nodes, layout, *measured))
    return runs


def judge(
    runs: Sequence[Run], engine: Engine = MEASURED, constants: Constants = FITTED
) -> dict[str, Any]:
    """Medians of relative errors; the share of the runs, which all fitted, that is said
    to fit; and for each model and number of nodes the measured speed of the layout of
    the best prediction by that of the best measured one."""
    done = [run for run in runs if run.tokens]
    said = [run.estimate(engine, constants) for run in done]
    best: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for run, one in zip(done, said):
        pair = (one.expected * one.fits, run.tokens)
        best.setdefault((run.model, run.nodes), []).append(pair)
    return {
        "runs": len(done),
        "tflops": statistics.median(
            abs(one.tokens / run.tokens - 1) for run, one in zip(done, said)
        ),
        "memory": statistics.median(
            abs(one.gib / run.memory - 1) for run, one in zip(done, said)
        ),
        "fits": sum(one.fits for one in said) / len(done),
        "chosen": {
            key: max(pairs)[1] / max(speed for _, speed in pairs)
            for key, pairs in sorted(best.items())
        },
    }


def fit(start: Any, loss: Callable[[Any], float], names: Sequence[str]) -> Any:
    """The object of a dataclass whose fields `names` make `loss` least.

    From `start` on, one field after the other is multiplied by a factor or divided by
    it; the factor shrinks where nothing helps any more. Far from the start costs a
    little (RIDGE), so that of values that do as well those nearest to it are taken.
    """

    def cost(one: Any) -> float:
        moved = (math.log(getattr(one, n) / getattr(start, n)) for n in names)
        return loss(one) + RIDGE * sum(far * far for far in moved)

    best, least, factor = start, cost(start), 1.5
    while factor > 1.01:
        before = least
        for name in names:
            for by in (factor, 1 / factor):
                tried = replace(best, **{name: getattr(best, name) * by})
                if (error := cost(tried)) < least:
                    best, least = tried, error
        if least > before - 2e-4:
            factor = math.sqrt(factor)
    return best


def calibrate(runs: Iterable[Run]) -> tuple[Engine, Constants]:
    """Constants of memory and of time, fitted to runs."""
    runs = [run for run in runs if run.tokens]
    weights = [1 + run.mfu / 10 for run in runs]

    def memory_loss(engine: Engine) -> float:
        return sum(_off(r.estimate(engine).gib, r.memory) for r in runs) / len(runs)

    def time_loss(one: Constants) -> float:
        errors = (_off(run.estimate(engine, one).tokens, run.tokens) for run in runs)
        return sum(map(operator.mul, weights, errors)) / sum(weights)

    engine = fit(FIRST_ENGINE, memory_loss, OF_MEMORY)
    return engine, fit(FIRST, time_loss, OF_TIME)


def _off(said: float, seen: float) -> float:
    return min(MOST, abs(math.log(said / seen)))


def held_out(runs: Sequence[Run], folds: int) -> list[dict[str, Any]]:
    """`judge` on a random half of the runs, with constants fitted to the other half;
    and, where `folds` is 0, on each model with constants fitted to the other models."""
    chance, parts = random.Random(0), list[tuple[str, list[Run], list[Run]]]()
    for part in range(folds):
        mixed = chance.sample(list(runs), len(runs))
        parts.append((f"random half {part + 1}", mixed[::2], mixed[1::2]))
    for name in () if folds else MODELS:
        others = [run for run in runs if run.model != name]
        parts.append((name, others, [run for run in runs if run.model == name]))
    return [
        {"held out": name, **judge(rest, *calibrate(seen))}
        for name, seen, rest in parts
    ]


def show(result: dict[str, Any]) -> str:
    """A judgement in a few lines."""
    chosen = result["chosen"]
    good = [key for key, share in chosen.items() if share >= 0.9]
    lost = [f"{m} on {n}: {s:.2f}" for (m, n), s in chosen.items() if s < 0.9]
    return (
        f"{result.get('held out', 'all')}: {result['runs']} runs, TFLOP/s off by "
        f"{result['tflops']:.1%}, memory by {result['memory']:.1%} (medians), "
        f"{result['fits']:.1%} said to fit; the chosen layout reaches 90 % of the best "
        f"in {len(good)} of {len(chosen)}{'; not ' if lost else ''}{', '.join(lost)}"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table")
    parser.add_argument("--fit", action="store_true", help="print fitted constants")
    parser.add_argument("--folds", type=int, help="random halves; 0: by models")
    options = parser.parse_args()
    runs = load(options.table)
    if options.folds is not None:
        for result in held_out(runs, options.folds):
            print(show(result), flush=True)
        return
    engine, constants = calibrate(runs) if options.fit else (MEASURED, FITTED)
    for first, one, names in (
        (FIRST_ENGINE, engine, OF_MEMORY), (FIRST, constants, OF_TIME)
    ):  # fmt: skip
        for name in names:
            begun, found = getattr(first, name), getattr(one, name)
            print(f"fitted: {name:15} from {begun:11.4g} to {found:11.4g}")
    print(show(judge(runs, engine, constants)))


if __name__ == "__main__":
    main()
