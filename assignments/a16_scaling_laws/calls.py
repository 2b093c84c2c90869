"""What a16 runs in the student's process: counts, fits, a forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.calling import read, tensor

# A theta from which the smallest objective is found.
GOOD = (3.0, 0.4, 5.0, 0.4, 0.0)


def counts(
    device: str, layers: int, width: int, vocab_size: int, hidden: int | None,
    tokens: int, budget: float,
) -> dict[str, Any]:  # fmt: skip
    """`parameters`, `training_flops` and `tokens_for`"""
    from minitorch import scaling

    n = scaling.parameters(layers, width, vocab_size, hidden)
    return {
        "parameters": n,
        "flops": float(scaling.training_flops(n, tokens)),
        "tokens": float(scaling.tokens_for(budget, n)),
    }


def power_law(device: str, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """`fit_power_law`"""
    from minitorch.scaling import fit_power_law

    found = fit_power_law(x, y)
    return {"factor": float(found.factor), "exponent": float(found.exponent)}


def interval(
    device: str, x: np.ndarray, y: np.ndarray, picks: np.ndarray, level: float
) -> dict[str, Any]:
    """`exponent_interval`"""
    from minitorch.scaling import exponent_interval

    low, high = exponent_interval(x, y, picks, level)
    return {"low": float(low), "high": float(high)}


def minimum(device: str, N: np.ndarray, loss: np.ndarray) -> dict[str, Any]:
    """`isoflop_minimum`, or that there is none."""
    from minitorch.scaling import isoflop_minimum

    try:
        n, lowest = isoflop_minimum(N, loss)
    except ValueError:
        return {"minimum": None, "loss": None}
    return {"minimum": float(n), "loss": float(lowest)}


def laws(
    device: str, budgets: np.ndarray, N: np.ndarray, loss: np.ndarray
) -> dict[str, Any]:
    """`isoflop_laws`, or that there are none."""
    from minitorch.scaling import isoflop_laws

    try:
        found = isoflop_laws(budgets, N, loss)
    except ValueError:
        return {"laws": None}
    return {"laws": [float(x) for law in found for x in law]}


def distance(
    device: str, theta: np.ndarray, N: np.ndarray, D: np.ndarray, loss: np.ndarray,
    delta: float,
) -> dict[str, Any]:  # fmt: skip
    """`objective` and its gradient"""
    from minitorch.scaling import objective

    leaf = tensor(device, theta, requires_grad=True)
    logs = [tensor(device, np.log(a)) for a in (N, D, loss)]
    value = objective(leaf, *logs, delta)
    value.backward()
    return {"objective": float(value.item()), "grad": read(leaf.grad)}


def fitted(
    device: str, N: np.ndarray, D: np.ndarray, loss: np.ndarray,
    starts: Sequence[Sequence[float]], at_N: np.ndarray, at_D: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    """`fit_law`, and what its law says of other runs; and what `minimized` returns."""
    from minitorch.scaling import fit_law, minimized, objective

    law = fit_law(N, D, loss, starts)
    try:
        fit_law(N, D, loss, [[math.nan] * 5])
        refused = False
    except ValueError:
        refused = True
    logs = [tensor(device, np.log(a)) for a in (N, D, loss)]
    theta = tensor(device, np.array(GOOD), requires_grad=True)
    said, end = float(minimized(theta, *logs)), objective(theta, *logs).item()
    return {
        "E": float(law.E),
        "losses": np.asarray(law(at_N, at_D)),
        "a ValueError where no end is finite": refused,
        "minimized returns the objective at the end": (
            abs(said - end) < 1e-9 + 1e-3 * end  # or at the last place but one
        ),
    }


def spent(device: str, law: Sequence[float], budget: float) -> dict[str, Any]:
    """`Law.optimal`"""
    from minitorch.scaling import Law

    n, d = Law(*law).optimal(budget)
    return {"parameters": float(n), "tokens": float(d)}


def foretold(
    device: str, rows: dict[str, np.ndarray], at: Sequence[tuple[int, int]], law: Any
) -> dict[str, Any]:
    """`forecast` for some (N, D), of rows of smaller budgets; of a `law` if not None,
    which it is not told."""
    from assignments.a16_scaling_laws.forecast import forecast

    before = {name: a.copy() for name, a in rows.items()}
    losses = [float(forecast(rows, n, d)) for n, d in at]
    same = before.keys() == rows.keys() and all(
        np.array_equal(a, rows[name]) for name, a in before.items()
    )
    return {"losses": losses, "rows are as they were": same}
