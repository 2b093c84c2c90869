"""A right implementation of the scalar operators, and some with a mistake each.

What a student's properties are judged by: they must hold for the right one, and each
wrong one must fail one of them at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from assignments.checks import Broken


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


RIGHT: dict[str, Callable[..., Any]] = {
    "identity": lambda x: x,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y if y != 0 else math.copysign(math.inf, x),
    "neg": lambda x: -x,
    "abs": lambda x: math.fabs(x),
    "sign": lambda x: float((x > 0) - (x < 0)),
    "maximum": lambda x, y: x if x > y else y,
    "minimum": lambda x, y: x if x < y else y,
    "sigmoid": _sigmoid,
    "relu": lambda x: x if x > 0 else 0.0,
    "relu_backward": lambda grad, x: grad if x > 0 else 0.0,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}

WRONG: tuple[tuple[str, str, str, Callable[..., Any]], ...] = (
    ("add-drops", "add(x, y) is x", "add", lambda x, y: x),
    ("add-one", "add(x, y) is x + y + 1", "add", lambda x, y: x + y + 1),
    ("mul-adds", "mul(x, y) is x + y", "mul", lambda x, y: x + y),
    ("mul-size", "mul(x, y) is |x y|", "mul", lambda x, y: abs(x * y)),
    ("sub-swapped", "sub(x, y) is y - x", "sub", lambda x, y: y - x),
    ("div-whole", "div(x, y) is rounded down", "div", lambda x, y: x // (y or 1)),
    ("neg-nothing", "neg(x) is x", "neg", lambda x: x),
    ("max-first", "maximum(x, y) is x", "maximum", lambda x, y: x),
    ("min-max", "minimum gives the larger", "minimum", max),
    ("lt-le", "lt(x, x) is True", "lt", lambda x, y: x <= y),
    ("eq-always", "eq is always True", "eq", lambda x, y: True),
    ("relu-abs", "relu(x) is |x|", "relu", abs),
    ("relu-leaks", "relu(x) is x / 100 below 0", "relu", lambda x: max(x, x / 100)),
    ("sigmoid-tanh", "sigmoid is tanh", "sigmoid", math.tanh),
    ("sigmoid-falls", "sigmoid falls", "sigmoid", lambda x: _sigmoid(-x)),
    ("sign-zero", "sign(0) is 1", "sign", lambda x: 1.0 if x >= 0 else -1.0),
    ("abs-keeps", "abs(x) is x", "abs", lambda x: x),
)


def reference() -> Any:
    """The right implementation."""
    return SimpleNamespace(**RIGHT)


def _broken(name: str, what: str, function: str, fn: Callable[..., Any]) -> Broken:
    return Broken(name, what, lambda: SimpleNamespace(**{**RIGHT, function: fn}))


BROKEN = tuple(_broken(*entry) for entry in WRONG)
