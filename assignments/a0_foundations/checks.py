"""What a0 is checked with; the oracle is PyTorch, and Python for lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from assignments.a0_foundations import calls
from assignments.a0_foundations.broken import BROKEN, RIGHT, reference
from assignments.checks import AnyCheck, Check, Properties
from assignments.draw import Draw

SPECIAL = (0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 800.0, -800.0)


def _number(draw: Draw) -> float:
    if draw.integer(0, 2) == 2:
        return draw.choice(SPECIAL)
    return draw.number(-5.0, 5.0)


# ------------------------------------------------------------------------- operators

ONE = ("identity", "neg", "abs", "sign", "sigmoid", "relu")
TWO = ("add", "sub", "mul", "div", "maximum", "minimum", *calls.BOOLEAN)
BACKWARD = ("relu_backward", "tanh_backward", "sigmoid_backward", "log_backward")


def _oracle(fn: str) -> Callable[..., Any]:
    import torch

    aten = torch.ops.aten
    names: dict[str, Callable[..., Any]] = {
        "identity": lambda x: x,
        "relu_backward": lambda grad, x: aten.threshold_backward(grad, x, 0),
        "tanh_backward": aten.tanh_backward,
        "sigmoid_backward": aten.sigmoid_backward,
        "log_backward": torch.div,
    }
    return names.get(fn) or vars(torch)[fn]


def _operator_expected(fn: str, numbers: tuple[Any, ...]) -> dict[str, Any]:
    import torch

    if fn == "abs_int":
        return {"out": -numbers[0] if numbers[0] < 0 else numbers[0]}
    if fn == "sign" and math.isnan(numbers[0]):
        return {"out": math.nan}  # torch says 0 here
    out = _oracle(fn)(*[torch.tensor(x, dtype=torch.float64) for x in numbers])
    return {"out": out.item()}


def _operator_inputs(
    draw: Draw, fn: str, count: int, first: int = -1, second: int = -1
) -> dict[str, Any]:
    if fn == "abs_int":
        return {
            "fn": fn,
            "numbers": (draw.choice((0, 5, -7, 2**60 + 1, -(2**60) - 1)),),
        }
    if fn in ("tanh_backward", "sigmoid_backward"):
        return {"fn": fn, "numbers": (draw.number(-3, 3), draw.number(-1, 1))}
    numbers = [_number(draw) for _ in range(count)]
    if first >= 0:
        numbers = [SPECIAL[first], SPECIAL[second]][:count]
    if fn in calls.BOOLEAN and draw.integer(0, 1):
        numbers[1] = numbers[0]
    if fn in BACKWARD:
        numbers[0] = draw.number(-3, 3)
    return {"fn": fn, "numbers": tuple(numbers)}


# Each special number with each other one.
CORNERS = tuple(
    {"first": i, "second": j} for i in range(len(SPECIAL)) for j in range(len(SPECIAL))
)


def _operator(fn: str) -> Check:
    count = 2 if fn in (*TWO, *BACKWARD) else 1
    edges = CORNERS  # where one number alone comes from them, once for each
    if fn not in TWO:
        edges = CORNERS[: len(SPECIAL)] if fn in BACKWARD else CORNERS[:: len(SPECIAL)]
    return Check(
        "a0.1",
        fn,
        calls.operator,
        partial(_operator_inputs, fn=fn, count=count),
        _operator_expected,
        edges=edges,
        examples=60,
        oracle="the docstring" if fn in ("abs_int", "sign") else "PyTorch",
    )


# ----------------------------------------------------------------------------- lists


def _list(draw: Draw, n: int) -> list[int]:
    return [draw.integer(-9, 9) for _ in range(n)]


def _map_inputs(draw: Draw, n: int) -> dict[str, Any]:
    return {"fn": draw.choice(("negative", "text")), "xs": _list(draw, n)}


def _map_expected(fn: str, xs: list[Any]) -> dict[str, Any]:
    out = [calls.PLAIN[fn](x) for x in xs]
    return {"out": out, "lazily": out}


def _zip_inputs(draw: Draw, n: int, m: int) -> dict[str, Any]:
    fn = draw.choice(("minus", "pair"))
    return {"fn": fn, "xs": _list(draw, n), "ys": _list(draw, m)}


def _zip_expected(fn: str, xs: list[Any], ys: list[Any]) -> dict[str, Any]:
    out = [calls.PLAIN[fn](xs[i], ys[i]) for i in range(min(len(xs), len(ys)))]
    return {"out": out, "lazily": out}


def _reduce_inputs(draw: Draw, n: int) -> dict[str, Any]:
    start = draw.integer(-9, 9)
    return {"fn": draw.choice(("minus", "pair")), "xs": _list(draw, n), "start": start}


def _reduce_expected(fn: str, xs: list[Any], start: Any) -> dict[str, Any]:
    from functools import reduce

    out = reduce(calls.PLAIN[fn], xs, start)
    return {"out": out, "lazily": out}


LENGTHS = {"n": (0, 4)}
LISTS = (
    Check(
        "a0.3",
        "map",
        calls.map_list,
        _map_inputs,
        _map_expected,
        LENGTHS,
        oracle="Python",
    ),
    Check(
        "a0.3",
        "zip_with",
        calls.zip_lists,
        _zip_inputs,
        _zip_expected,
        {**LENGTHS, "m": (0, 4)},
        hint="It ends with the shorter of the two.",
        oracle="Python",
    ),
    Check(
        "a0.3",
        "reduce",
        calls.reduce_list,
        _reduce_inputs,
        _reduce_expected,
        LENGTHS,
        oracle="Python",
    ),
)


# --------------------------------------------------------------------------- modules


def _tree(draw: Draw, depth: int) -> calls.Tree:
    names = ("weight", "bias", "scale")[: draw.integer(0, 3)]
    children: dict[str, Any] = {}
    for name in ("a", "b", "c")[: draw.integer(0, 3 if depth else 0)]:
        missing = draw.integer(0, 4) == 4
        children[name] = None if missing else _tree(draw, depth - 1)
    return {"parameters": list(names), "children": children}


def _root(draw: Draw, depth: int) -> calls.Tree:
    """A tree whose root has a child "first" with a parameter "weight"."""
    root, first = _tree(draw, depth), _tree(draw, depth - 1)
    first["parameters"] = ["weight", *first["parameters"][1:]]
    return {**root, "children": {"first": first, **root["children"]}}


def _tree_inputs(draw: Draw, depth: int) -> dict[str, Any]:
    return {"tree": _root(draw, depth), "tied": bool(draw.integer(0, 1))}


def _training_inputs(draw: Draw, depth: int) -> dict[str, Any]:
    modes = [bool(draw.integer(0, 1)) for _ in range(3)]
    return {"tree": _root(draw, depth), "modes": modes}


def _theirs(tree: calls.Tree) -> Any:
    import torch

    return calls.build(
        tree, torch.nn.Module, lambda: torch.nn.Parameter(torch.zeros(1))
    )


def _modules_expected(tree: calls.Tree, tied: bool) -> dict[str, Any]:
    return calls.tree_names(_theirs(tree), tied)


def _parameters_expected(tree: calls.Tree, tied: bool) -> dict[str, Any]:
    return calls.parameter_names(_theirs(tree), tied)


def _training_expected(tree: calls.Tree, modes: list[bool]) -> dict[str, Any]:
    return calls.training_flags(_theirs(tree), modes)


DEPTH = {"depth": (1, 3)}
MODULES = (
    Check("a0.4", "modules", calls.modules, _tree_inputs, _modules_expected, DEPTH),
    Check(
        "a0.4",
        "parameters",
        calls.parameters,
        _tree_inputs,
        _parameters_expected,
        DEPTH,
    ),
    Check(
        "a0.4",
        "train and eval",
        calls.training,
        _training_inputs,
        _training_expected,
        DEPTH,
    ),
    Check(
        "a0.4",
        "train refuses what is no bool",
        calls.bad_mode,
        lambda draw: {"mode": draw.choice((1, "yes", None))},
        lambda mode: {"raises": "ValueError"},
        examples=5,
        oracle="the docstring",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *[_operator(fn) for fn in (*ONE, *TWO, *BACKWARD, "abs_int")],
    Properties(
        "a0.2",
        "properties",
        "assignments.a0_foundations.properties",
        reference,
        BROKEN,
        tuple(RIGHT),
    ),
    *LISTS,
    *MODULES,
)
