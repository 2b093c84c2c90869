"""Programs that are written out, compiled by us and by PyTorch.

With this file one can list them (`compile_cases`): activations, norms and losses made
of single operations, as a program has them before somebody writes a kernel. Each comes
as it is written ("eager"), and compiled by both libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import minitorch as mt
from minitorch.bench.inputs import Case, forward_and_backward, timed, torch_module


def gelu(x: Any) -> Any:
    """x [*] -> [*], with tanh; eight operations."""
    return 0.5 * x * (1.0 + (0.7978845608 * (x + 0.044715 * x * x * x)).tanh())


def scaled_and_shifted(x: Any, weight: Any, shift: Any) -> Any:
    """x [R, N], weight [N], shift [R, 1] -> [R, N]"""
    return (x * weight + shift).relu() + x


def rms_norm(x: Any, weight: Any) -> Any:
    """x [R, N], weight [N] -> [R, N]"""
    return x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt() * weight


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    """x [R, N], weight and bias [N] -> [R, N]"""
    away = x - x.mean(-1, keepdim=True)
    variance = (away * away).mean(-1, keepdim=True)
    return away * (variance + 1e-5).rsqrt() * weight + bias


def softmax(x: Any) -> Any:
    """x [R, N] -> [R, N]"""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def focal_loss(x: Any) -> Any:
    """x [R, N] -> []; Lin et al., "Focal loss for dense object detection", 2017."""
    p = x.sigmoid()
    return (-(1.0 - p) * (1.0 - p) * (p + 1e-6).log()).mean()


# What is read and written at least: a matrix of a program's `shapes`, so many times.
PROGRAMS: dict[str, tuple[Callable, str, int]] = {
    "gelu": (gelu, "m", 2),
    "scale, shift, relu, add": (scaled_and_shifted, "mrc", 2),
    "rms norm": (rms_norm, "mr", 2),
    "layer norm": (layer_norm, "mrr", 2),
    "softmax": (softmax, "m", 2),
    "focal loss": (focal_loss, "m", 1),
}


def compile_cases(rows: int = 1024, cols: int = 1024) -> Iterator[Case]:
    """Each program on a matrix of `rows` x `cols`: as it is, compiled, and compiled
    with its backward pass."""
    torch = torch_module()
    kinds = {"m": (rows, cols), "r": (cols,), "c": (rows, 1)}
    for name, (program, letters, times) in PROGRAMS.items():
        shapes = [kinds[letter] for letter in letters]
        moved = 4.0 * times * prod(kinds["m"])
        ours, theirs = mt.compile(program), torch.compile(program)
        title = f"{name} {rows} x {cols}"
        yield timed("compile", f"{title}, eager", program, shapes, 0.0)
        yield timed("compile", f"{title}, compiled", ours, shapes, moved, theirs=theirs)
        yield timed(
            "compile", f"{title}, compiled, with backward", ours, shapes, 0.0,
            theirs=theirs, how=forward_and_backward, agree=None,
        )  # fmt: skip
