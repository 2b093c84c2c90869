"""Pictures for a6 and a8: windows, pooling, losses; bytes moved, an online softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minitorch
from assignments.pictures import picture
from assignments.pictures.tensors import values_of
from fast_ops.softmax_ladder import merge, online_pair
from minitorch.executor import Executor, executing
from minitorch.nn import functional as F
from minitorch.scenes import Part, Scene, part
from minitorch.tensor_data import TensorData

A6, A8 = "assignments/a6_convolutional_networks", "assignments/a8_fusion"


def bars(
    names: Sequence[str], values: Sequence[float], hue: int, unit: float, caption: str
) -> Part:
    """Numbers as horizontal bars, to the left of zero where they are negative."""
    zero = max(0.0, *(-v for v in values))
    lanes = [
        [f"{name} {v:.2f}", [[zero + min(v, 0), zero + max(v, 0), "", hue]] * bool(v)]
        for name, v in zip(names, values)
    ]
    return part("timeline", caption, lanes=lanes, unit=unit, height=16)


# ---------------------------------------------------------------------------------- a6


@picture(f"{A6}/windows")
def windows() -> Scene:
    x = minitorch.eye(5, device="simple").unsqueeze(1)  # one of five numbers each
    weight, parts = x.new_tensor([[[1.0, 2.0]]]), []
    for name, value in (("plain", 1), ("stride", 2), ("padding", 1), ("dilation", 2)):
        how: dict[str, Any] = {} if name == "plain" else {name: value}
        found = F.conv1d(x, weight, **how)[:, 0].T.tolist()
        cells = [[[" ab"[int(v)].strip(), int(v) or -1] for v in row] for row in found]
        parts.append(part(
            "grid", f"{name} {value}" if how else name, cells=cells, size=(26, 24),
            cols=[f"x{i}" for i in range(5)],
            rows=[f"out {o}" for o in range(len(found))],
        ))  # fmt: skip
    return [parts]


@picture(f"{A6}/windows2d")
def windows2d() -> Scene:
    x = minitorch.zeros(1, 1, 4, 4, device="simple", requires_grad=True)
    out = F.conv2d(x, x.new_ones(1, 1, 2, 2))
    (seen,) = minitorch.grad([out[0, 0, 1, 1]], [x], retain_graph=True)
    (counts,) = minitorch.grad([out.sum()], [x])
    cells = [[["", 1 if v else -1] for v in row] for row in seen[0, 0].tolist()]
    one: list[list[Any]] = [[["", -1] for _ in range(3)] for _ in range(3)]
    one[1][1] = ["", 3]
    return [[
        part("grid", "x (4, 4)", cells=cells, notes=["is seen by"]),
        part("grid", "out (3, 3)", cells=one, notes=["output (1, 1)"]),
        values_of(counts[0, 0], 4, "gradient of x", notes=["G and weights: 1"]),
    ]]  # fmt: skip


@picture(f"{A6}/pooling")
def pooling() -> Scene:
    grad = minitorch.tensor([[[[4.0, 8], [12, 16]]]], device="simple")
    x = grad.new_tensor([[[[1.0, 7, 0, 2], [3, 1, 4, 1], [2, 2, 0, 5], [8, 0, 5, 3]]]])
    outs, backs = (
        [values_of(x[0, 0], 1, "x", split=[2])],
        [values_of(grad[0, 0], 2, "G")],
    )
    x.requires_grad_()
    for name, pool in (("maximum", F.max_pool2d), ("mean", F.avg_pool2d)):
        out = pool(x, 2)
        (back,) = minitorch.grad([out], [x], [grad])
        outs.append(values_of(out.detach()[0, 0], 3, name, size=(44, 28)))
        backs.append(values_of(back[0, 0], 4, f"gradient of x: {name}", split=[2]))
        for row in backs[-1]["cells"]:
            row[:] = [[text, -1 if text == "0" else hue] for text, hue in row]
    return [outs, backs]


@picture(f"{A6}/cross_entropy")
def cross_entropy() -> Scene:
    names, scores = [f"class {i}" for i in range(4)], [[2.0, 0.5, 1.0, -1.0]]
    a = minitorch.tensor(scores, device="simple", requires_grad=True)
    loss = F.cross_entropy(a, a.new_tensor([2], dtype=minitorch.int64))
    (grad,) = minitorch.grad([loss], [a])
    return [[
        bars(names, scores[0], 1, 40, "scores a"),
        bars(names, F.softmax(a.detach(), 1)[0].tolist(), 3, 120, "probabilities p"),
        bars(names, grad[0].tolist(), 2, 90, "gradient of a: p - [j = 2]"),
    ]]  # fmt: skip


# ---------------------------------------------------------------------------------- a8


class Bytes(Executor):
    """Counts the bytes of the tensors that functions of a backend take and return."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def call(
        self, name: str, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        out = fn(*args, **kwargs)
        made = out if isinstance(out, tuple) else (out,)
        tensors = {id(a): a for a in (*args, *made) if isinstance(a, TensorData)}
        self.counts.append(sum(a.size * a.dtype.itemsize for a in tensors.values()))
        return out


@picture(f"{A8}/bytes")
def moved() -> Scene:
    x = minitorch.zeros(64, 64, device="simple")
    bias, weight = x[0].clone(), x[0] + 1

    def norm() -> Any:
        d = x - x.mean(-1, keepdim=True)
        s = ((d * d).mean(-1, keepdim=True) + 1e-5).rsqrt()
        return d * s * weight + bias

    lanes: list[Any] = []
    for name, hue, program in (
        ("gelu(x + bias), composed", 2, lambda: (x + bias).gelu()),
        ("the same, fused", 1, lambda: F.bias_activation(x, bias, "gelu")),
        ("layer norm, composed", 2, norm),
        ("the same, fused", 1, lambda: F.layer_norm(x, (64,), weight, bias)),
    ):
        with minitorch.no_grad(), executing(Bytes()) as seen:
            program()
        at, boxes = 0, []
        for count in seen.counts:
            if each := round(count / x.numel()):  # else it is about rows alone
                boxes.append([at, at + each, str(each), hue])
                at += each
        lanes.append([f"{name}: {at}", boxes])
    return [[part("timeline", lanes=lanes, unit=8, notes=[
        "a box: a kernel; the number: bytes that it reads and writes for each of x"
    ])]]  # fmt: skip


@picture(f"{A8}/online")
def online() -> Scene:
    row, lanes = np.array([2, 1, 5, 3], np.float32), []
    for k in range(1, 5):
        top, total = map(float, online_pair(row[:k]))
        at, boxes = 0.0, []
        for j, x in enumerate(row[:k].tolist()):
            w = math.exp(x - top)
            boxes.append([at, at + w, f"{x:g}" if w > 0.1 else "", 1 + j])
            at += w
        assert abs(at - total) < 1e-6
        lanes.append([f"after {row[k - 1]:g}: top {top:g}, total {total:.3f}", boxes])
    notes = ["a box: exp(x - top), with its x; all boxes: total"]
    return [[part("timeline", lanes=lanes, unit=250, notes=notes)]]


@picture(f"{A8}/merges")
def merges() -> Scene:
    x = np.array([2, 1, 5, 3, 0, 4], np.float32)
    nodes: dict[str, Any] = {}

    def add(name: str, pair: Any, at: list[float], what: str) -> Any:
        text = [what, f"top {pair[0]:g}", f"total {pair[1]:.3f}"]
        nodes[name] = {"at": at, "text": text, "hue": 3 if len(name) == 1 else 1}
        return pair

    chunks = {
        name: add(name, online_pair(x[2 * i : 2 * i + 2]), [0.3, i],
                  " ".join(f"{v:g}" for v in x[2 * i : 2 * i + 2]))
        for i, name in enumerate("abc")
    }  # fmt: skip
    left = add("ab", merge(*chunks["a"], *chunks["b"]), [1.6, 0], "merged")
    right = add("bc", merge(*chunks["b"], *chunks["c"]), [1.6, 2], "merged")
    one = add("ab c", merge(*left, *chunks["c"]), [2.9, 0.5], "all")
    other = add("a bc", merge(*chunks["a"], *right), [2.9, 1.5], "all")
    assert np.allclose(one, other) and np.allclose(one, online_pair(x))
    edges = [["a", "ab", "", 1], ["b", "ab", "", 1], ["ab", "ab c", "", 1],
             ["c", "ab c", "", 1], ["b", "bc", "", 2], ["c", "bc", "", 2],
             ["bc", "a bc", "", 2], ["a", "a bc", "", 2]]  # fmt: skip
    return [[part("graph", nodes=nodes, edges=edges, step=[170, 92],
                  notes=["blue arrows: (a, b), then c; orange: a, then (b, c)"])
    ]]  # fmt: skip
