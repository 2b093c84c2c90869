"""Scaling laws: what a larger model, or more text, will be worth, from small runs.

With this file one can count what a run costs (`parameters`, `training_flops`,
`tokens_for`), read rows of runs that were made (`read_runs`; `python -m
minitorch.bench.scaling` makes them), and fit laws to them:

    fit_power_law, exponent_interval   y = factor * x ** exponent, and how sure that is
    isoflop_minimum, isoflop_laws      the best size for each budget, and from there on
    fit_law                            L(N, D) = E + A / N ** alpha + B / D ** beta

A `Law` says the loss of a run that nobody has made (`law(N, D)`), and how to spend a
budget (`law.optimal(C)`).

Source: Kaplan et al., "Scaling laws for neural language models", 2020; Hoffmann et al.,
"Training compute-optimal large language models", 2022, whose approaches 2 and 3 these
are.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

import minitorch.nn.functional as F
from minitorch.creation import tensor
from minitorch.dtypes import float64
from minitorch.optim import LBFGS
from minitorch.tensor import Tensor

Floats = npt.NDArray[np.float64]

# Of the logarithms' errors, below which they count as squares; Hoffmann et al.'s.
DELTA = 1e-3


class Run(NamedTuple):
    """A run that was made, and a row of a file.

    Attributes:
        budget: the C that was asked for; steps are whole, so 6 N D is only near it.
        width: of the model.
        N: its `parameters`.
        D: tokens that it has read.
        steps: batches.
        batch: pieces in one.
        lr: the highest learning rate.
        seed: of weights.
        vocab: tokens of the language.
        loss: nats a token, on what was not read.
        seconds: how long it took.
        device: where.
    """

    budget: float
    width: int
    N: int
    D: int
    steps: int
    batch: int
    lr: float
    seed: int
    vocab: int
    loss: float
    seconds: float
    device: str

    @property
    def key(self) -> tuple[Any, ...]:
        """What it is, without what came out."""
        return self[:9]


def read_runs(path: str | Path) -> list[Run]:
    """The rows of a file; none where it does not exist.

    Errors: ValueError for a file with other columns, or a row that is not whole.
    """
    path = Path(path)
    if not path.exists() or not path.stat().st_size:
        return []
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != Run._fields:
            raise ValueError(
                f"read_runs: {path} has the columns {', '.join(rows.fieldnames or ())}"
                f"; expected {', '.join(Run._fields)}"
            )
        kinds, runs = get_type_hints(Run), []
        for row in rows:
            try:
                if None in row.values():  # fewer fields than columns
                    raise ValueError
                runs.append(Run(**{n: kinds[n](text) for n, text in row.items()}))
            except (KeyError, ValueError):
                raise ValueError(
                    f"read_runs: line {rows.line_num} of {path} is no whole row; "
                    f"expected {len(kinds)} fields, take it out"
                ) from None
        return runs


# ------------------------------------------------------------------------ what it costs


def parameters(
    layers: int, width: int, vocab_size: int, hidden: int | None = None
) -> int:
    """N: how many numbers of a GPT's matrices a token is multiplied by.

    A block has four matrices of attention (queries, keys, values, and what becomes of
    them) and the MLP's two, with `hidden` units between them; None: 4 width. The head
    has a row for each token of the vocabulary. Tables in which tokens and positions are
    looked up, biases and norms do not count.
    """
    # BEGIN SOLUTION a16.1
    hidden = 4 * width if hidden is None else hidden
    block = 4 * width * width + 2 * width * hidden
    return layers * block + vocab_size * width
    # END SOLUTION a16.1


def training_flops(N: float, D: float) -> float:
    """C: operations that it takes to train N parameters on D tokens.

    A parameter takes part in a multiplication and an addition for each token, in the
    forward pass, and in two more of each in the backward pass: for the gradient of the
    layer's input, and for its own. What attention does with pairs of tokens is left out
    (see `GPTConfig.flops_per_token`).
    """
    # BEGIN SOLUTION a16.1
    return 6 * N * D
    # END SOLUTION a16.1


def tokens_for(budget: float, N: float) -> float:
    """D: how many tokens N parameters can be trained on for a budget of operations."""
    # BEGIN SOLUTION a16.1
    return budget / training_flops(N, 1)
    # END SOLUTION a16.1


# ------------------------------------------------------------------------- a power law


class PowerLaw(NamedTuple):
    """y = factor * x ** exponent"""

    factor: float
    exponent: float

    def __call__(self, x: Any) -> Any:
        """y, of a number or an array."""
        return self.factor * np.asarray(x, np.float64) ** self.exponent


def _positive(name: str, least: int, **arrays: Any) -> list[Floats]:
    """The arrays as float64 [n], checked: as long as each other, and above 0."""
    found = [np.asarray(a, np.float64) for a in arrays.values()]
    sizes, different = {a.shape for a in found}, len(np.unique(found[0]))
    if len(sizes) > 1 or found[0].ndim != 1 or different < least:
        shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(arrays, found))
        few = f", and not {different}" if different < least else ""
        raise ValueError(
            f"{name}: got {shapes}; expected as many numbers of each, with {least} "
            f"different values of {next(iter(arrays))} at least{few}"
        )
    for what, a in zip(arrays, found):
        bad = a[~(np.isfinite(a) & (a > 0))]
        if bad.size:
            raise ValueError(
                f"{name}: {what} has {bad[0]}; expected finite numbers above 0"
            )
    return found


def fit_power_law(x: Any, y: Any) -> PowerLaw:
    """The straight line through (log x, log y) with the smallest sum of squares.

    Args:
        x, y: [n], above 0. For losses, take away what they cannot get below.

    Errors: ValueError for numbers that are not above 0, or less than two different x.
    """
    x, y = _positive("fit_power_law", 2, x=x, y=y)
    # BEGIN SOLUTION a16.2
    u, v = np.log(x), np.log(y)
    away = u - u.mean()
    exponent = float(away @ v / (away @ away))
    return PowerLaw(math.exp(v.mean() - exponent * u.mean()), exponent)
    # END SOLUTION a16.2


def exponent_interval(
    x: Any, y: Any, picks: npt.NDArray[np.int64], level: float = 0.95
) -> tuple[float, float]:
    """Between which numbers the exponent lies, by the bootstrap.

    Each row of `picks` is a sample of the points, drawn with replacement, and has an
    exponent of its own. A share of `level` of all these lies in the interval, half of
    the rest on either side of it (`np.quantile`, between two of them in proportion).
    Samples whose x are all equal have no exponent and do not count.

    Args:
        x, y: [n], above 0.
        picks: int64 [B, n], numbers of points; `resamples(n, B)` draws some.

    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    x, y = _positive("exponent_interval", 2, x=x, y=y)
    # BEGIN SOLUTION a16.2
    found = [fit_power_law(x[p], y[p]).exponent for p in picks if np.ptp(x[p]) > 0]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
    # END SOLUTION a16.2


def resamples(n: int, count: int = 1000, seed: int = 0) -> npt.NDArray[np.int64]:
    """int64 [count, n], each row n of the numbers below n, drawn with replacement."""
    return np.random.default_rng(seed).integers(0, n, (count, n))


# ----------------------------------------------------------------- budgets, approach 2


def isoflop_minimum(N: Any, loss: Any) -> tuple[float, float]:
    """(N, loss) at the lowest point of a parabola through (log N, loss).

    Of runs that cost the same, small models have too few parameters and large ones too
    few tokens; between them a parabola is a fair guess.

    Args:
        N, loss: [n], of runs with the same budget.

    Errors: ValueError for less than three different N, and where the parabola, by least
    squares, has no lowest point.
    """
    N, loss = _positive("isoflop_minimum", 3, N=N, loss=loss)
    # BEGIN SOLUTION a16.3
    middle = np.log(N).mean()  # else squares of large numbers would take the digits
    square, slope, rest = np.polyfit(np.log(N) - middle, loss, 2)
    if square <= 0:
        raise ValueError("isoflop_minimum: the parabola has no lowest point")
    lowest = -slope / (2 * square)
    return math.exp(middle + lowest), float(rest + slope * lowest / 2)
    # END SOLUTION a16.3


def isoflop_laws(budgets: Any, N: Any, loss: Any) -> tuple[PowerLaw, PowerLaw]:
    """The best N and the best D as power laws of the budget.

    Of each budget that has a minimum, and between sizes that were tried, not outside of
    them, comes one point (C, N), and D is what the budget leaves: `tokens_for`.

    Args:
        budgets, N, loss: [n], of all runs.

    Errors: ValueError where less than two budgets have such a minimum.
    """
    budgets, N, loss = _positive("isoflop_laws", 2, budgets=budgets, N=N, loss=loss)
    # BEGIN SOLUTION a16.3
    points = []
    for budget in np.unique(budgets):
        sizes, losses = N[budgets == budget], loss[budgets == budget]
        try:
            best, _ = isoflop_minimum(sizes, losses)
        except ValueError:
            continue
        if sizes.min() <= best <= sizes.max():
            points.append((budget, best, tokens_for(budget, best)))
    budgets, n, d = np.array(points).reshape(-1, 3).T
    return fit_power_law(budgets, n), fit_power_law(budgets, d)
    # END SOLUTION a16.3


# -------------------------------------------------------------- one law, approach 3


class Law(NamedTuple):
    """L(N, D) = E + A / N ** alpha + B / D ** beta

    E is the loss that no model gets below, the second term what the size costs, and the
    third what the number of tokens does.
    """

    A: float
    alpha: float
    B: float
    beta: float
    E: float

    def __call__(self, N: Any, D: Any) -> Any:
        """The loss, of numbers or arrays."""
        n, d = np.asarray(N, np.float64), np.asarray(D, np.float64)
        return self.E + self.A * n**-self.alpha + self.B * d**-self.beta

    def optimal(self, budget: float) -> tuple[float, float]:
        """(N, D) with the smallest loss of all with 6 N D = budget."""
        # BEGIN SOLUTION a16.5
        both = self.alpha + self.beta
        ratio = (self.alpha * self.A / (self.beta * self.B)) ** (1 / both)
        n = ratio * (budget / 6) ** (self.beta / both)
        return n, tokens_for(budget, n)
        # END SOLUTION a16.5


def objective(
    theta: Tensor, log_n: Tensor, log_d: Tensor, log_loss: Tensor, delta: float = DELTA
) -> Tensor:
    """How far a law is from runs: the sum of Huber losses of log L(N, D) - log loss.

    theta [5] is (a, alpha, b, beta, e) with A = exp(a), B = exp(b) and E = exp(e), so
    that all three are above 0 and log L is the logsumexp of three straight lines:

        log L(N, D) = logsumexp(a - alpha log N, b - beta log D, e)

    Args:
        log_n, log_d, log_loss: [n], of the runs.
        delta: errors count as squares up to here, and above as their size.

    Returns:
        a sum and not a mean, []: means of a hundred runs are so small that an optimizer
        takes them for the end.
    """
    # BEGIN SOLUTION a16.4
    a, alpha, b, beta, e = theta.unbind()
    lines = Tensor.stack([a - alpha * log_n, b - beta * log_d, e.expand(len(log_n))])
    found = lines.logsumexp(0)
    return F.huber_loss(found, log_loss, reduction="sum", delta=delta)
    # END SOLUTION a16.4


# Where fits begin: a and alpha, b and beta, e.
SLOPES = (2.0, 0.3), (8.0, 0.8)
STARTS = tuple((*n, *d, e) for n, d, e in product(SLOPES, SLOPES, (-1.0, 0.5)))


def fit_law(
    N: Any, D: Any, loss: Any, starts: Iterable[Sequence[float]] = STARTS
) -> Law:
    """The law with the smallest `objective`, by L-BFGS from each of the starts.

    The objective has valleys that end nowhere, so the best of several ends is taken; an
    end that is not finite is none.

    Args:
        N, D, loss: [n], above 0.
        starts: theta to begin with, see `objective`.

    Errors: ValueError for numbers that are not above 0, runs of less than two sizes or
    two numbers of tokens, less than five different runs, which is what the law has
    unknowns, and where no start has led anywhere.
    """
    arrays = _positive("fit_law", 2, N=N, D=D, loss=loss)
    _positive("fit_law", 2, D=D)
    if (runs := len({*zip(*arrays[:2])})) < len(Law._fields):
        raise ValueError(
            f"fit_law: got {runs} different runs (N, D) for the {len(Law._fields)} "
            f"unknowns {', '.join(Law._fields)}; expected as many runs at least"
        )
    logs = [tensor(np.log(a), dtype=float64) for a in arrays]
    # BEGIN SOLUTION a16.4
    best, least = None, math.inf
    for start in starts:
        theta = tensor(list(start), dtype=float64, requires_grad=True)
        end = minimized(theta, *logs)
        if end < least:
            best, least = theta, end
    if best is None:
        raise ValueError("fit_law: no start led to a finite objective; try others")
    return law_of(best)
    # END SOLUTION a16.4


def law_of(theta: Tensor) -> Law:
    """The law that theta [5] stands for, see `objective`."""
    a, alpha, b, beta, e = theta.tolist()
    return Law(math.exp(a), alpha, math.exp(b), beta, math.exp(e))


def minimized(theta: Tensor, log_n: Tensor, log_d: Tensor, log_loss: Tensor) -> float:
    """Change theta so that `objective` is small, and return what that is then."""
    optimizer = LBFGS(
        [theta], max_iter=500, tolerance_grad=1e-9, tolerance_change=1e-12,
        history_size=10, line_search_fn="strong_wolfe",
    )  # fmt: skip

    # BEGIN SOLUTION a16.4
    def closure() -> Tensor:
        optimizer.zero_grad()
        value = objective(theta, log_n, log_d, log_loss)
        value.backward()
        return value

    optimizer.step(closure)
    return objective(theta.detach(), log_n, log_d, log_loss).item()
    # END SOLUTION a16.4
