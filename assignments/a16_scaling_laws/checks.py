"""What a16 is checked with; the oracle is the definition in float64, or a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assignments.a16_scaling_laws import calls
from assignments.checks import AnyCheck, Check, Inputs, sizes_of
from assignments.draw import Draw
from assignments.oracles import as_torch
from minitorch.scaling import Run, read_runs

DEFINITION = "the definition in float64"
CLOSE = 1e-6

# ------------------------------------------------------------------------ what it costs


def _counts_inputs(draw: Draw, layers: int, width: int, vocab_size: int) -> Inputs:
    return {
        "layers": layers,
        "width": width,
        "vocab_size": vocab_size,
        "hidden": draw.choice((None, width, 2 * width + 1, 0)),
        "tokens": draw.integer(1, 10**9),
        "budget": float(draw.integer(1, 1000)) * 1e9,
    }


def _counts_expected(
    layers: int, width: int, vocab_size: int, hidden: int | None, tokens: int,
    budget: float,
) -> dict[str, Any]:  # fmt: skip
    """By the shapes of the matrices, one after the other."""
    units = 4 * width if hidden is None else hidden
    shapes = [(width, width)] * 4 + [(width, units), (units, width)]
    n = layers * sum(map(math.prod, shapes)) + math.prod((vocab_size, width))
    return {"parameters": n, "flops": 6.0 * n * tokens, "tokens": budget / (6 * n)}


# ------------------------------------------------------------------------- a power law


def _points(draw: Draw, n: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """x, of which two are different at least, and y near a power law."""
    x = 10 ** draw.array((n,), "float64", 0, 6)
    x[0], x[1] = 10.0 * (1 + x[0]), 1.0 + x[1] / 1e7
    if n > 3 and draw.choice((False, True)):
        x[2:] = x[0]
    x *= draw.choice((1.0, 1e-8))
    slope, factor = draw.number(-1.5, 1.0), 10 ** draw.number(-2, 3)
    y = factor * x**slope * np.exp(noise * draw.array((n,), "float64", -1, 1))
    return x, y


def _power_inputs(draw: Draw, n: int) -> Inputs:
    x, y = _points(draw, n, draw.choice((0.0, 0.1, 2.0)))
    return {"x": x, "y": y}


def _line(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(intercept, slope) of the straight line through the logarithms."""
    columns = np.stack([np.ones(len(x)), np.log(x)], 1)
    found: np.ndarray = np.linalg.lstsq(columns, np.log(y), rcond=None)[0]
    return found


def _power_expected(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    start, slope = _line(x, y)
    return {"factor": math.exp(start), "exponent": float(slope)}


def _interval_inputs(draw: Draw, n: int, count: int) -> Inputs:
    """Some samples have one point alone, and no slope."""
    x, y = _points(draw, n, 0.5)
    picks = draw.array((count, n), "int64", 0, n - 1)
    picks[0, :2] = 0, 1
    if count > 2:
        picks[1] = draw.integer(0, n - 1)
    return {"x": x, "y": y, "picks": picks, "level": draw.choice((0.95, 0.5))}


def _interval_expected(
    x: np.ndarray, y: np.ndarray, picks: np.ndarray, level: float
) -> dict[str, Any]:
    slopes = sorted(_line(x[p], y[p])[1] for p in picks if len(set(x[p])) > 1)
    low, high = (_between(slopes, (1 + sign * level) / 2) for sign in (-1, 1))
    return {"low": low, "high": high}


def _between(values: Sequence[float], share: float) -> float:
    """A quantile, on the straight line between the two values next to it."""
    at = share * (len(values) - 1)
    below = min(int(at), len(values) - 1)
    above = min(below + 1, len(values) - 1)
    return float(values[below] + (at - below) * (values[above] - values[below]))


COSTS = (
    Check(
        *("a16.1", "counts", calls.counts, _counts_inputs, _counts_expected),
        {"layers": (0, 5), "width": (1, 70), "vocab_size": (1, 99)},
        sizes_of("layers width vocab_size", (1, 1, 1), (2, 16, 64), (12, 768, 50_257)),
        tolerance=1e-9,
        examples=20,
        oracle="the task",
        hint="Write the shapes of a block's six matrices down, and the head's. Does an "
        "operation count once or twice, and how many passes are there?",
    ),
)
POWERS = (
    Check(
        *("a16.2", "fit_power_law", calls.power_law, _power_inputs, _power_expected),
        *({"n": (2, 9)}, ({"n": 2}, {"n": 30})),
        tolerance=CLOSE,
        examples=30,
        oracle=DEFINITION,
        hint="A power law is a straight line in which coordinates? Errors are measured "
        "there.",
    ),
    Check(
        *("a16.2", "exponent_interval", calls.interval),
        *(_interval_inputs, _interval_expected),
        {"n": (2, 7), "count": (1, 40)},
        sizes_of("n count", (2, 1), (2, 30), (9, 100)),
        tolerance=CLOSE,
        examples=20,
        oracle=DEFINITION,
        hint="A row of picks is a sample. Which quantiles have `level` between them?",
    ),
)

# ------------------------------------------------------------------------------ budgets


def _bowl(draw: Draw, n: int, budget: float, kind: str) -> tuple[np.ndarray, Any]:
    """Sizes around the best one of a budget, one of them twice, and their losses."""
    middle = 0.5 * math.log(budget) + draw.number(-0.5, 0.5)
    u = middle + np.linspace(-1.5, 1.5, n) + draw.number(-0.25, 0.25)
    if n > 3 and draw.choice((False, True)):
        u[0] = u[1]
    if kind == "outside":
        u += draw.choice((-4.0, 4.0))
    bend = -0.1 if kind == "hill" else draw.number(0.05, 0.2)
    loss = 3.0 + bend * (u - middle) ** 2
    return np.exp(u), loss + 0.005 * draw.array((n,), "float64", -1, 1)


def _minimum_inputs(draw: Draw, n: int) -> Inputs:
    kind = draw.choice(("bowl", "outside", "bowl", "hill"))
    N, loss = _bowl(draw, n, 10.0 ** draw.integer(4, 24), kind)
    order = np.argsort(draw.array((n,), "float64", 0, 1))
    return {"N": N[order], "loss": loss[order]}


def _parabola(N: np.ndarray, loss: np.ndarray) -> tuple[float, float] | None:
    """The lowest point, or None."""
    middle = np.log(N).mean()
    u = np.log(N) - middle
    columns = np.stack([np.ones(len(u)), u, u * u], 1)
    rest, slope, square = np.linalg.lstsq(columns, loss, rcond=None)[0]
    if square <= 0:
        return None
    at = -slope / (2 * square)
    lowest = rest + slope * at + square * at * at
    return math.exp(middle + at), float(lowest)


def _minimum_expected(N: np.ndarray, loss: np.ndarray) -> dict[str, Any]:
    found = _parabola(N, loss)
    n, lowest = (None, None) if found is None else found
    return {"minimum": n, "loss": lowest}


KINDS = ("bowl", "bowl", "bowl", "outside", "hill", "few")


def _laws_inputs(draw: Draw, groups: int) -> Inputs:
    """Budgets of which some have no minimum that counts; rows in any order."""
    rows: list[tuple[float, float, float]] = []
    for g in range(groups):
        kind, budget = draw.choice(KINDS), 10.0 ** (9 + g)
        n = 2 if kind == "few" else draw.integer(3, 6)
        rows += [(budget, *pair) for pair in zip(*_bowl(draw, n, budget, kind))]
    rows += [(1e8, 1e4, 3.0)] if groups == 1 else []
    order = np.argsort(draw.array((len(rows),), "float64", 0, 1))
    budgets, N, loss = np.array(rows)[order].T
    return {"budgets": budgets.copy(), "N": N.copy(), "loss": loss.copy()}


def _laws_expected(
    budgets: np.ndarray, N: np.ndarray, loss: np.ndarray
) -> dict[str, Any]:
    points = []
    for budget in sorted(set(budgets)):
        mine = budgets == budget
        found = _parabola(N[mine], loss[mine]) if mine.sum() > 2 else None
        if found and N[mine].min() <= found[0] <= N[mine].max():
            points.append((budget, found[0], budget / 6 / found[0]))
    if len(points) < 2:
        return {"laws": None}
    c, n, d = np.array(points).T
    lines = [_line(c, n), _line(c, d)]
    return {"laws": [x for a, b in lines for x in (math.exp(a), float(b))]}


BUDGETS = (
    Check(
        *("a16.3", "isoflop_minimum", calls.minimum),
        *(_minimum_inputs, _minimum_expected),
        *({"n": (3, 7)}, ({"n": 3}, {"n": 12})),
        tolerance=CLOSE,
        examples=30,
        oracle=DEFINITION,
        hint="Of what is the loss a parabola, N or log N? What if it is open below? "
        "Squares of 50 and of 51 are nearly the same: what can be taken away first?",
    ),
    Check(
        *("a16.3", "isoflop_laws", calls.laws, _laws_inputs, _laws_expected),
        *({"groups": (2, 6)}, ({"groups": 1}, {"groups": 2}, {"groups": 9})),
        tolerance=CLOSE,
        examples=30,
        oracle=DEFINITION,
        hint="One point for each budget. Which budgets have none: with too few sizes, "
        "with a hill, with a lowest point where nobody has been?",
    ),
)

# ------------------------------------------------------------------------------ one law


def _distance_inputs(draw: Draw, n: int) -> Inputs:
    """Also theta for which an exponential of its own would be infinite, in any line."""
    far = np.zeros(5)
    far[draw.choice((0, 2, 4))] = draw.choice((0.0, 0.0, 2000.0))
    theta = draw.array((5,), "float64", 0, 1) * np.array([8.0, 1, 8, 1, 1])
    return {
        "theta": theta + far,
        "N": np.exp(draw.array((n,), "float64", 6, 12)),
        "D": np.exp(draw.array((n,), "float64", 10, 16)),
        "loss": np.exp(draw.array((n,), "float64", 0, 2)),
        "delta": draw.choice((1e-3, 0.5)),
    }


def _distance_expected(
    theta: np.ndarray, N: np.ndarray, D: np.ndarray, loss: np.ndarray, delta: float
) -> dict[str, Any]:
    import torch

    leaf = as_torch(theta, True)
    a, alpha, b, beta, e = leaf
    n, d, y = (as_torch(np.log(x)) for x in (N, D, loss))
    lines = torch.stack([a - alpha * n, b - beta * d, e + 0 * n], 1)
    off = (torch.logsumexp(lines, 1) - y).abs()
    each = torch.where(off <= delta, off * off / 2, delta * (off - delta / 2))
    total = each.sum()
    total.backward()
    assert leaf.grad is not None
    return {"objective": total.item(), "grad": leaf.grad.numpy()}


# One that is nowhere, one from which everything is flat, one that leads there, and two
# more of the first kinds.
FLAT = (-60.0, 0.0, -60.0, 0.0, 0.0)
NOWHERE = (math.nan,) * 5
GOOD = calls.GOOD
WAYS = (NOWHERE, FLAT, GOOD), (GOOD, FLAT, NOWHERE), (FLAT, GOOD, FLAT)


def _fitted_inputs(draw: Draw, off: int) -> Inputs:
    """Runs of a law, a few of which went wrong."""
    law = _law(draw)
    n = 10 ** np.repeat(np.linspace(3, 5, 5), 5)
    d = 10 ** np.tile(np.linspace(5, 7, 5), 5)
    loss = _losses(law, n, d)
    for _ in range(off):
        loss[draw.integer(0, len(loss) - 1)] *= 1.5
    starts = [list(start) for start in draw.choice(WAYS)]
    at_N, at_D = np.array([1e3, 1e4, 1e5, 1e6]), np.array([1e7, 1e6, 1e5, 1e8])
    return dict(N=n, D=d, loss=loss, starts=starts, at_N=at_N, at_D=at_D)


def _fitted_expected(
    N: np.ndarray, D: np.ndarray, loss: np.ndarray, starts: Any, at_N: Any, at_D: Any
) -> dict[str, Any]:
    """By steps of Levenberg and Marquardt, each with weights that make squares of what
    Huber's loss is at this place."""
    n, d, y = np.log(N), np.log(D), np.log(loss)
    theta, damp = np.array(GOOD), 1.0
    value, step = _step(theta, damp, n, d, y)
    for _ in range(400):
        new, then = _step(theta + step, damp / 3, n, d, y)
        if new <= value:
            theta, damp, value, step = theta + step, damp / 3, new, then
        else:
            damp *= 4
            _, step = _step(theta, damp, n, d, y)
    a, alpha, b, beta, e = theta
    law = math.exp(a), alpha, math.exp(b), beta, math.exp(e)
    return {
        "E": float(law[-1]),
        "losses": _losses(law, at_N, at_D),
        "a ValueError where no end is finite": True,
        "minimized returns the objective at the end": True,
    }


def _step(
    theta: np.ndarray, damp: float, n: np.ndarray, d: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray]:
    """The sum of Huber losses at theta, and how to change it."""
    a, alpha, b, beta, e = theta
    terms = np.exp(np.stack([a - alpha * n, b - beta * d, e + 0 * n]))
    p = terms / terms.sum(0)
    slopes = np.stack([p[0], -p[0] * n, p[1], -p[1] * d, p[2]])
    error = np.log(terms.sum(0)) - y
    off = np.abs(error)
    value = np.where(off < 1e-3, off**2 / 2, 1e-3 * (off - 5e-4)).sum()
    weighted = slopes / np.maximum(off, 1e-3)
    square = weighted @ slopes.T
    square += damp * np.diag(np.diag(square) + 1e-12)
    return float(value), -np.linalg.solve(square, weighted @ error)


def _law(draw: Draw) -> tuple[float, ...]:
    alpha, beta = draw.number(0.3, 0.6), draw.number(0.3, 0.6)
    a, b = draw.number(0.5, 2.0) * 1e3**alpha, draw.number(0.5, 2.0) * 1e5**beta
    return a, alpha, b, beta, draw.number(0.5, 2.0)


def _losses(law: Sequence[float], n: Any, d: Any) -> Any:
    a, alpha, b, beta, e = law
    return e + a / n**alpha + b / d**beta


def _spent_inputs(draw: Draw) -> Inputs:
    law = [float(x) for x in _law(draw)]
    return {"law": law, "budget": 10.0 ** draw.integer(9, 24)}


def _spent_expected(law: Sequence[float], budget: float) -> dict[str, Any]:
    """Where the slope of the loss over log N is 0, by halves."""
    a, alpha, b, beta, _ = law
    low, high = 0.0, math.log(budget)
    for _ in range(200):
        u = (low + high) / 2
        falls = alpha * a * math.exp(-alpha * u)
        rises = beta * b * math.exp(-beta * (math.log(budget / 6) - u))
        low, high = (u, high) if falls > rises else (low, u)
    return {"parameters": math.exp(low), "tokens": budget / 6 / math.exp(low)}


LAWS = (
    Check(
        *("a16.4", "objective", calls.distance, _distance_inputs, _distance_expected),
        *({"n": (1, 6)}, ({"n": 1}, {"n": 40})),
        tolerance=CLOSE,
        examples=20,
        hint="log(exp(x) + exp(y)) is infinite for x = 1000, where logsumexp is not. "
        "Is it the sum over the runs, or their mean?",
    ),
    Check(
        *("a16.4", "fit_law", calls.fitted, _fitted_inputs, _fitted_expected),
        *({"off": (0, 2)}, ({"off": 0}, {"off": 3})),
        tolerance=1e-3,
        examples=4,
        oracle=DEFINITION,
        hint="Print the objective at the end of each start. Some end high, some are "
        "not finite: which end is returned?",
    ),
    Check(
        *("a16.5", "Law.optimal", calls.spent, _spent_inputs, _spent_expected),
        tolerance=1e-4,  # a search by the loss itself finds no more than 1e-6
        examples=20,
        oracle=DEFINITION,
        hint="Put D = C / 6N into the law: where is its slope over N zero?",
    ),
)

# --------------------------------------------------------------------------- a forecast

RUNS = Path(__file__).with_name("runs.csv")
# N, D and loss of runs of 1e12 operations, which `runs.csv` does not have. Laws of rows
# that have begun to learn, by any of eighteen rules, are off by 0.028 at most, by plain
# squares on a grid 0.032, that of all rows 0.040, of the last budget alone 0.085.
LATER = (15_360, 10_850_816, 1.592675), (26_624, 6_260_224, 1.579066)
BAND = 0.035


def _foretold_inputs(draw: Draw, made: int) -> Inputs:
    """The rows, or with losses of a law: 1.67 to 1.74 later, where runs have 1.59, so
    that who knows these has learnt nothing from the rows."""
    runs = read_runs(RUNS)
    rows = {n: np.array([getattr(r, n) for r in runs]) for n in Run._fields[:-1]}
    law = None
    if made:
        alpha, beta = draw.number(0.3, 0.4), draw.number(0.3, 0.4)
        a, b = draw.number(0.15, 0.2) * 1e4**alpha, draw.number(0.15, 0.2) * 1e6**beta
        law = a, alpha, b, beta, 1.4906
        rows["loss"] = _losses(law, rows["N"], rows["D"])
    return {"rows": rows, "at": [(n, d) for n, d, _ in LATER], "law": law}


def _foretold_expected(rows: Any, at: Any, law: Any) -> dict[str, Any]:
    losses = [_losses(law, n, d) if law else loss for n, d, loss in LATER]
    return {"losses": losses, "rows are as they were": True}


FORECASTS = (
    Check(
        *("a16.5", "forecast", calls.foretold, _foretold_inputs, _foretold_expected),
        *({"made": (1, 1)}, ({"made": 0},)),
        tolerance=BAND / 2.6,  # of 1 + the loss
        examples=1,
        oracle="what the runs came to",
        hint="`python forecast.py` foretells runs that you have from smaller ones. "
        "Which rows follow no law yet?",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (*COSTS, *POWERS, *BUDGETS, *LAWS, *FORECASTS)
