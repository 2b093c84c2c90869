"""What a17 runs in the student's process: bytes, masks, packing, feedback, a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.calling import operand, read, results, tensor

GROUP = 32  # numbers that share a scale in four bits
NAMES = "weight", "other"  # of the parameters of a module that is pruned


def as_bytes(device: str, weight: np.ndarray, kind: str, layout: str) -> dict[str, Any]:
    """`quantize`"""
    from minitorch import Tensor
    from minitorch.quantization import quantize

    w = Tensor(operand(device, weight, layout))
    q, scale = quantize(w, kind, GROUP)
    return results({"q": q, "scale": scale}, {"weight": w})


def nearest(
    device: str, w: np.ndarray, scale: np.ndarray, largest: int
) -> dict[str, Any]:
    """`nearest`"""
    from minitorch.rounding import nearest

    given = w.copy(), scale.copy()
    q = np.array(nearest(*given, largest), np.float64)
    return {"q": q, "w": given[0], "scale": given[1]}


# ------------------------------------------------------------------------------- masks


def mask(
    device: str, t: np.ndarray, default_mask: np.ndarray, amount: float, layout: str
) -> dict[str, Any]:
    """`L1Unstructured.compute_mask`, also of numbers that are all equally large."""
    from minitorch.nn.utils.prune import L1Unstructured

    given = {
        "t": tensor(device, t, layout),
        "default_mask": tensor(device, default_mask, layout),
    }
    found = results({"mask": L1Unstructured(amount).compute_mask(**given)}, given)
    equal, ones = tensor(device, np.sign(t)), tensor(device, np.ones_like(t))
    kept = read(L1Unstructured(amount).compute_mask(equal, ones))
    return {**found, "zeros for numbers that are all equal": int((kept == 0).sum())}


def together(
    device: str, weights: Sequence[np.ndarray], before: Sequence[float],
    scores: Sequence[np.ndarray | None], amount: float,
) -> dict[str, Any]:  # fmt: skip
    """`global_unstructured` of two parameters a module, pruned before where `before`
    is not 0, and by scores where these are given."""
    from minitorch import nn
    from minitorch.nn.utils import prune

    modules = [nn.Module() for _ in weights]
    pairs = [(modules[i // 2], NAMES[i % 2]) for i in range(len(weights))]
    for (module, name), weight, share in zip(pairs, weights, before):
        module.register_parameter(name, nn.Parameter(tensor(device, weight)))
        if share:
            prune.l1_unstructured(module, name, share)
    by = {p: tensor(device, s) for p, s in zip(pairs, scores) if s is not None}
    prune.global_unstructured(pairs, prune.L1Unstructured, by, amount=amount)
    return {
        "masks": [read(getattr(m, f"{name}_mask")) for m, name in pairs],
        "weights": [read(getattr(m, name)) for m, name in pairs],
        "what learns is as it was": all(
            np.array_equal(read(getattr(m, f"{name}_orig")), weight)
            for (m, name), weight in zip(pairs, weights)
        ),
    }


# ------------------------------------------------------------------------- two of four


def twos(device: str, weight: np.ndarray, layout: str) -> dict[str, Any]:
    """`two_of_four`"""
    from minitorch.nn.sparse import two_of_four

    w = tensor(device, weight, layout)
    return results({"mask": two_of_four(w)}, {"weight": w})


def packed(
    device: str, weight: np.ndarray, mask: np.ndarray, layout: str
) -> dict[str, Any]:
    """`pack_two_of_four`"""
    from minitorch.nn.sparse import pack_two_of_four

    given = {"weight": tensor(device, weight, layout), "mask": tensor(device, mask)}
    values, places = pack_two_of_four(**given)
    return results({"values": values, "places": places}, given)


def unpacked(device: str, values: np.ndarray, places: np.ndarray) -> dict[str, Any]:
    """`unpack_two_of_four`"""
    from minitorch.nn.sparse import unpack_two_of_four

    given = {"values": tensor(device, values), "places": tensor(device, places)}
    return results({"weight": unpack_two_of_four(**given)}, given)


# ---------------------------------------------------------------------------- feedback


def factor(device: str, x: np.ndarray, damping: float) -> dict[str, Any]:
    """`feedback_factor`"""
    from minitorch.rounding import feedback_factor

    mine = x.copy()
    return {"U": np.array(feedback_factor(mine, damping)), "x": mine}


def rounded(
    device: str, weight: np.ndarray, x: np.ndarray, bits: int, damping: float
) -> dict[str, Any]:
    """`round_with_feedback`"""
    from minitorch.rounding import round_with_feedback

    given = {"weight": tensor(device, weight), "x": tensor(device, x)}
    q, scale = round_with_feedback(**given, bits=bits, damping=damping)
    return results({"q": q, "scale": scale}, given)


def network(
    device: str, weights: Sequence[np.ndarray], biases: Sequence[np.ndarray],
    between: Sequence[str], x: np.ndarray, bits: int,
) -> dict[str, Any]:  # fmt: skip
    """`round_linears` of Linear layers with ReLU, Tanh or nothing between them."""
    from assignments.a17_compression.smaller import round_linears
    from minitorch import nn

    layers: list[Any] = []
    linears = [nn.Linear(w.shape[1], w.shape[0]) for w in weights]
    kinds: dict[str, list[Any]] = {"relu": [nn.ReLU()], "tanh": [nn.Tanh()]}
    for linear, weight, bias, before in zip(linears, weights, biases, ("", *between)):
        linear.weight = nn.Parameter(tensor(device, weight))
        linear.bias = nn.Parameter(tensor(device, bias))
        layers += [*kinds.get(before, []), linear]
    model = nn.Sequential(*layers)
    made = round_linears(model, tensor(device, x), bits)
    found = [part for part in made if hasattr(part, "q")]
    same = list(model) == layers and all(
        np.array_equal(read(linear.weight), w) for linear, w in zip(linears, weights)
    )
    return {
        "q": [read(part.q) for part in found],
        "out": read(made(tensor(device, x))),
        "the given network is as it was": same,
    }


# ---------------------------------------------------------------------------- a teacher


def taught(
    device: str, student: np.ndarray, teacher: np.ndarray, target: np.ndarray,
    temperature: float, alpha: float,
) -> dict[str, Any]:  # fmt: skip
    """`distillation_loss` and its gradient"""
    from minitorch.distillation import distillation_loss

    leaf = tensor(device, student, requires_grad=True)
    fixed = tensor(device, teacher, requires_grad=True)
    loss = distillation_loss(leaf, fixed, tensor(device, target), temperature, alpha)
    loss.backward()
    return {
        "loss": read(loss),
        "grad": read(leaf.grad),
        "nothing learns through the teacher": fixed.grad is None,
    }
