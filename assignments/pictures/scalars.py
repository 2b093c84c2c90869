"""Pictures for a0 and a1: functions of a number, recorded graphs, a trained network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from assignments.a1_scalar_autodiff import xor
from assignments.pictures import picture
from minitorch import nn, operators
from minitorch.autodiff import central_difference, no_grad, topological_sort
from minitorch.scalar import Scalar
from minitorch.scenes import Part, Scene, part

A1 = "assignments/a1_scalar_autodiff"


@picture("assignments/a0_foundations/functions")
def functions() -> Scene:
    xs, values, slopes = [x / 10 for x in range(-40, 41)], [], []
    for hue, (name, at, slope_at) in enumerate(
        (
            ("relu", [1.05, 1.6], [2.4, 1.06]),
            ("sigmoid", [3.5, 0.72], [2.9, 0.19]),
            ("tanh", [-3.3, -0.78], [2.1, 0.62]),
        ),
        start=1,
    ):
        ys = [getattr(operators, name)(x) for x in xs]
        backward = getattr(operators, f"{name}_backward")
        ds = [backward(1.0, kept) for kept in (xs if name == "relu" else ys)]
        seen = [point for point in zip(xs, ys) if point[1] <= 2]
        values.append({"points": seen, "hue": hue, "text": name, "at": at})
        label = {"text": f"{name}_backward", "at": slope_at}
        slopes.append({"points": list(zip(xs, ds)), "hue": hue, **label})
    ticks = [[x, str(x)] for x in (-4, 0, 4)]
    common = {"x": [-4, 4], "xticks": ticks, "size": (310, 190)}
    left = {"y": [-1.1, 2], "yticks": [[-1, "-1"], [0, "0"], [1, "1"]]}
    right = {"y": [-0.05, 1.15], "yticks": [[0, "0"], [0.5, "0.5"], [1, "1"]]}
    return [[
        part("curve", "f(x)", series=values, **common, **left),
        part("curve", "f'(x), with gradient 1", series=slopes, **common, **right),
    ]]  # fmt: skip


@picture("assignments/a0_foundations/lists")
def lists() -> Scene:
    xs, ys = [3, 1, 4, 1], [2, 7, 1]
    negated = list(operators.map(operators.neg, xs))
    pairs = list(operators.zip_with(operators.add, xs, ys))
    steps = [10]

    def subtract(total: float, x: float) -> float:
        steps.append(int(operators.sub(total, x)))
        return steps[-1]

    assert operators.reduce(subtract, xs, steps[0]) == steps[-1]

    def row(name: str, numbers: Sequence[float], hue: int) -> Part:
        return {"cells": [[[f"{x:g}", hue] for x in numbers]], "rows": [name]}

    def all_of(count: int, hue: int) -> list[list[int]]:
        return [[i, i, hue] for i in range(count)]

    zipped = [row("xs", xs, 1), row("ys", ys, 2), row("", pairs, 3)]
    folded = [[i, i + 1, 1] for i in range(len(xs))]
    return [
        [part("layers", "map(neg, xs)", layers=[row("xs", xs, 1), row("", negated, 3)],
              links=[all_of(4, 0)], gap=26),
         part("layers", "zip_with(add, xs, ys)", layers=zipped, gap=26,
              links=[[], all_of(3, 0)])],
        [part("layers", "reduce(sub, xs, 10)", gap=30, links=[folded],
              layers=[row("xs", xs, 1), row("10, ...", steps, 3)],
              notes=["each number below is the one to its left, less the x above it"])],
    ]  # fmt: skip


class Net(nn.Module):
    """Two layers, of which one has a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1))


@picture("assignments/a0_foundations/tree")
def tree() -> Scene:
    net = Net()
    nodes: dict[str, Any] = {}
    edges, row = [], 0
    for kind, found in ((1, net.named_modules()), (3, net.named_parameters())):
        for name, of in found:
            short = name.rpartition(".")[2] or "net"
            text = [short, type(of).__name__] if kind == 1 else [short]
            nodes[name] = {"text": text, "hue": kind, "round": kind == 3}
    for name in sorted(nodes):
        depth = name.count(".") + bool(name)
        nodes[name]["at"] = [depth, row]
        row += not any(
            n.startswith(f"{name}." if name else "") for n in nodes if n != name
        )
        if name:
            edges.append([name.rpartition(".")[0], name, "", 0])
    return [[part("graph", nodes=nodes, edges=edges, step=[130, 52],
                  notes=["blue: modules; green: parameters, which are the leaves"])
    ]]  # fmt: skip


@picture(f"{A1}/graph")
def graph() -> Scene:
    x, y, grads = Scalar(2.0), Scalar(3.0), {}
    made = {"x": x, "y": y, "a": x * y, "b": x.log()}
    made["z"] = made["a"] + made["b"]
    made["w"] = made["z"] * 10.0
    for value in made.values():
        if node := value.node:
            node.hooks = {0: [lambda g, node=node: grads.update({id(node): g})]}
    made["w"].backward()
    names = {id(value.node or value): name for name, value in made.items()}
    places = {"x": [0, 0.25], "y": [0, 1.75], "a": [1.1, 1.75], "b": [1.1, 0.25],
              "z": [2.2, 1], "w": [3.3, 1]}  # fmt: skip
    nodes: dict[str, Any] = {}
    edges: list[list[Any]] = []
    for name, value in made.items():
        text, node = f"{name} = {value.data:.4g}", value.node
        if node is None:
            more: dict[str, Any] = {"hue": 3, "round": True}
            more["text"] = [text, f"grad {value.grad:g}"]
        else:
            got = grads[id(node)]
            more = {
                "hue": 1,
                "text": [f"{node.function.__name__}: {text}", f"gets {got:g}"],
            }
            sent = zip(node.edges, node.backward_node([got]))
            edges += [[name, names[id(e[0])], f"{g:g}", 4] for e, g in sent if e]
        nodes[name] = {"at": places[name], **more}
    return [[part("graph", nodes=nodes, edges=edges, step=(165, 74))]]


@picture(f"{A1}/order")
def order() -> Scene:
    leaves = {name: Scalar(0.5) for name in ("x", "w1", "w2", "w3")}
    names, h = {id(leaf): name for name, leaf in leaves.items()}, leaves["x"]
    for i in (1, 2, 3):
        h = h * leaves[f"w{i}"]
        names[id(h.node)] = f"h{i}"
    found = [names[id(item)] for item in topological_sort([h.node])]
    late = sorted(found, key=lambda name: name[0] != "h")
    parts = []
    for caption, items in (
        ("a leaf when it is complete", found),
        ("leaves last", late),
    ):
        ran = [s for s in items if s[0] == "h"]
        lanes = [["backward", [[2 * i, 2 * i + 2, s, 1] for i, s in enumerate(ran)]]]
        for name in ("w3", "w2", "w1"):
            start = 2 * sum(s in ran for s in items[: items.index(name)])
            lanes.append([name, [[start, start + 1.6, "send", 2]]])
        notes = ["order: " + " ".join(items)]
        parts.append(part("timeline", caption, lanes=lanes, unit=30, notes=notes))
    return [parts]


@picture(f"{A1}/difference")
def difference() -> Scene:
    def f(x: float) -> float:
        return 0.25 * math.exp(x)

    x = h = 1.0
    central, aside = central_difference(f, x, epsilon=h), (f(x + h) - f(x)) / h
    series: list[Any] = [
        {"points": [[t / 20, f(t / 20)] for t in range(-10, 47)], "hue": 0}
    ]
    for hue, slope, through, ends, text, at in (
        (1, central, x - h, (-0.4, 2.3), "(f(x+h) - f(x-h)) / 2h", [0.62, 1.7]),
        (2, aside, x, (0.3, 2.3), "(f(x+h) - f(x)) / h", [1.75, 0.62]),
        (3, f(x), x, (0.0, 2.0), "f'(x)", [2.12, 1.1]),  # exp is its own derivative
    ):
        line = [[t, f(through) + slope * (t - through)] for t in ends]
        series.append({"points": line, "hue": hue, "dash": hue == 3,
                       "text": f"{text} = {slope:.3f}", "at": at})  # fmt: skip
    dots = [[t, f(t)] for t in (x - h, x, x + h)]
    series.append({"points": dots, "hue": 0, "dots": True})
    ticks = [[x - h, "x - h"], [x, "x"], [x + h, "x + h"]]
    axes = {"x": [-0.5, 2.4], "y": [-0.15, 2.5], "xticks": ticks, "size": (480, 250)}
    return [[part("curve", series=series, **axes)]]


@picture(f"{A1}/xor")
def boundaries() -> Scene:
    network, parts, losses = xor.Network(8, seed=3), [], []
    for number in range(201):
        if number in (0, 40, 200):
            cells = _square(network, 13)
            parts.append(
                part("grid", f"after {number} steps", cells=cells, size=(11, 11))
            )
        losses.append([number, xor.step(network, xor.POINTS, xor.LABELS, 0.5)])
    curve = part(
        "curve", "loss", x=[0, 200], y=[0, 0.8], size=(150, 118),
        xticks=[[0, "0"], [200, "200 steps"]], yticks=[[0, "0"], [0.8, "0.8"]],
        series=[{"points": losses[::4], "hue": 1}],
    )  # fmt: skip
    return [[*parts, curve]]


def _square(network: xor.Network, side: int) -> list[list[list[Any]]]:
    """Blue for label 0, grey in between, orange for label 1; labels in the corners."""
    labels, at = (
        dict(zip(xor.POINTS, xor.LABELS)),
        [i / (side - 1) for i in range(side)],
    )

    def cell(x: float, y: float) -> list[Any]:
        p = network.forward((x, y)).data
        return [str(labels.get((x, y), "")), 1 if p < 0.35 else 2 if p > 0.65 else 0]

    with no_grad():
        return [[cell(x, y) for x in at] for y in at[::-1]]
