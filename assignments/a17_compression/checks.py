"""What a17 is checked with; the oracle is PyTorch, or the definition in float64."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from assignments.a17_compression import calls
from assignments.checks import AnyCheck, Check, Inputs, sizes_of
from assignments.draw import Draw, layout
from assignments.oracles import as_torch, load

DEFINITION = "the definition in float64"
CLOSE = 1e-6

# ------------------------------------------------------------------------------- bytes

LARGEST = {"int8": 127, "int4": 7}
GROUP = calls.GROUP


def _bytes_inputs(draw: Draw, n: int, k: int) -> Inputs:
    """Numbers that are not half way between two steps, where digits would decide; of
    more than one group in four bits, of which each has the largest that there is."""
    kind = "int4" if k > GROUP else draw.choice(("int8", "int4"))
    most = LARGEST[kind]
    whole = draw.array((n, k), "int64", -most, most)
    parts = draw.array((n, k), "float64", -0.45, 0.45)
    for start in range(0, k, GROUP):
        places = start + np.arange(n) % min(GROUP, k - start)
        whole[np.arange(n), places] = draw.choice((-most, most))
    parts[np.abs(whole) == most] = 0
    units = 10 ** draw.array((n, 1), "float64", -4, 1)
    if draw.choice((False, True)):
        whole[-1], parts[-1] = 0, 0
    dtype = draw.choice(("float32", "float64"))
    weight = (units * (whole + parts)).astype(dtype)
    return {"weight": weight, "kind": kind, "layout": layout(draw)}


def _bytes_expected(weight: np.ndarray, kind: str, layout: str) -> dict[str, Any]:
    wide = weight.astype(np.float64)
    if kind == "int4":
        wide = np.pad(wide, ((0, 0), (0, -wide.shape[1] % GROUP)))
        wide = wide.reshape(len(wide), -1, GROUP)
    scale = np.abs(wide).max(-1) / LARGEST[kind]
    q = np.zeros(wide.shape)
    np.divide(wide, scale[..., None], out=q, where=scale[..., None] > 0)
    q = np.rint(q)
    if kind == "int4":
        q = 16 * q[..., GROUP // 2 :] + q[..., : GROUP // 2] + 8
    return {"q": q.astype(np.int8), "scale": scale.astype(weight.dtype)}


def _nearest_inputs(draw: Draw, n: int, most: int) -> Inputs:
    """Steps of any size, also so small that numbers are beyond the last one; one for
    each number, or for each row of a matrix."""
    row, steps = draw.choice((((n,), (n,)), ((n, 3), (n, 1))))
    scale = 10 ** draw.array(steps, "float64", -2, 0)
    scale[draw.integer(0, n - 1)] *= draw.choice((1, 0))
    whole = draw.array(row, "int64", -most - 3, most + 3)
    w = scale * (whole + draw.array(row, "float64", -0.45, 0.45))
    return {"w": w, "scale": scale, "largest": most}


def _nearest_expected(w: np.ndarray, scale: np.ndarray, largest: int) -> dict[str, Any]:
    found = np.zeros(w.shape)
    for place, step in np.ndenumerate(np.broadcast_to(scale, w.shape)):
        steps = range(-largest, largest + 1) if step else [0]
        found[place] = min(steps, key=lambda q: abs(step * q - w[place]))
    return {"q": found, "w": w, "scale": scale}


BYTES = (
    Check(
        *("a17.1", "quantize", calls.as_bytes, _bytes_inputs, _bytes_expected),
        {"n": (1, 5), "k": (1, 9)},
        sizes_of("n k", (1, 1), (3, 1), (1, 40), (4, 31), (9, 33)),
        oracle=DEFINITION,
        hint="Which number of a row, or group, becomes the last step? Is it nearest, "
        "towards 0, or down? What is a row of zeros divided by?",
    ),
    Check(
        *("a17.1", "nearest", calls.nearest, _nearest_inputs, _nearest_expected),
        {"n": (1, 5), "most": (1, 7)},
        sizes_of("n most", (1, 1), (40, 127)),
        oracle=DEFINITION,
        hint="Some numbers lie beyond the last step: which one is nearest to these?",
    ),
)

# ------------------------------------------------------------------------------- masks


def _different(draw: Draw, n: int, k: int) -> np.ndarray:
    """Numbers of which no two are equally far from 0."""
    order = np.argsort(draw.array((n * k,), "float64", 0, 1), kind="stable") + 1.0
    signs = np.where(draw.array((n * k,), "bool"), -1, 1)
    made: np.ndarray = (order * signs / 8).reshape(n, k).astype(np.float32)
    return made


def _amount(draw: Draw, size: int) -> float | int:
    share = draw.choice((0.5, 0.0, 0.9, 0.25, 1.0))
    return draw.choice((share, draw.integer(0, size)))


def _mask_inputs(draw: Draw, n: int, k: int) -> Inputs:
    before = draw.array((n, k), "bool") | draw.choice((True, False))
    return {
        "t": _different(draw, n, k),
        "default_mask": before.astype(np.float32),
        "amount": _amount(draw, n * k),
        "layout": layout(draw),
    }


def _torch_prune() -> Any:
    load()
    import torch.nn.utils.prune as prune

    return prune


def _mask_expected(
    t: np.ndarray, default_mask: np.ndarray, amount: float, layout: str
) -> dict[str, Any]:
    method = _torch_prune().L1Unstructured(amount)
    found = method.compute_mask(as_torch(t), as_torch(default_mask))
    drop = round(amount * t.size) if isinstance(amount, float) else amount
    return {"mask": found.numpy(), "zeros for numbers that are all equal": drop}


def _together_inputs(draw: Draw, layers: int, size: int) -> Inputs:
    """Layers whose numbers are of different sizes, and no two equal among them all."""
    shapes = [(draw.integer(1, size), draw.integer(1, size)) for _ in range(layers)]
    total = sum(n * k for n, k in shapes)
    ends = np.cumsum([n * k for n, k in shapes])[:-1]

    def cut() -> list[np.ndarray]:
        parts = np.split(_different(draw, 1, total)[0], ends)
        return [part.reshape(shape) for part, shape in zip(parts, shapes)]

    weights, scores = cut(), [part + 1 / 16 * np.sign(part) for part in cut()]
    return {
        "weights": weights,
        "before": [draw.choice((0.0, 0.5)) for _ in shapes],
        "scores": [draw.choice((None, score)) for score in scores],
        "amount": draw.choice((0.5, 0.25, 0.0, 0.9, draw.integer(0, layers))),
    }


def _together_expected(
    weights: Sequence[np.ndarray], before: Sequence[float],
    scores: Sequence[np.ndarray | None], amount: float,
) -> dict[str, Any]:  # fmt: skip
    prune, torch = _torch_prune(), load()
    modules = [torch.nn.Module() for _ in weights]
    pairs = [(modules[i // 2], calls.NAMES[i % 2]) for i in range(len(weights))]
    for (module, name), weight, share in zip(pairs, weights, before):
        module.register_parameter(name, torch.nn.Parameter(as_torch(weight)))
        if share:
            prune.l1_unstructured(module, name, share)
    by = {p: as_torch(s) for p, s in zip(pairs, scores) if s is not None}
    prune.global_unstructured(pairs, prune.L1Unstructured, by, amount=amount)
    return {
        "masks": [getattr(m, f"{name}_mask").numpy() for m, name in pairs],
        "weights": [getattr(m, name).detach().numpy() for m, name in pairs],
        "what learns is as it was": True,
    }


MASKS = (
    Check(
        *("a17.2", "compute_mask", calls.mask, _mask_inputs, _mask_expected),
        {"n": (1, 4), "k": (1, 5)},
        sizes_of("n k", (1, 1), (1, 30), (20, 17)),
        hint="Which numbers are small, -3 or 1? What was 0 in default_mask stays 0, "
        "and default_mask itself stays as it is.",
    ),
    Check(
        *("a17.2", "global_unstructured", calls.together),
        *(_together_inputs, _together_expected),
        {"layers": (1, 4), "size": (1, 4)},
        sizes_of("layers size", (1, 1), (2, 3), (5, 6)),
        hint="One vector of all scores, and one of all masks: a share is of what is "
        "left of all layers together. Where scores are given, these decide.",
    ),
)

# ------------------------------------------------------------------------- two of four


def _twos_inputs(draw: Draw, n: int, fours: int) -> Inputs:
    weight = draw.array((n, 4 * fours))
    if draw.choice((False, True)):
        weight = np.round(weight)
    return {"weight": weight, "layout": layout(draw)}


def _twos_expected(weight: np.ndarray, layout: str) -> dict[str, Any]:
    groups = np.abs(weight).reshape(-1, 4)
    order = np.argsort(-groups, 1, kind="stable")
    mask = np.zeros(groups.shape, bool)
    np.put_along_axis(mask, order[:, :2], True, 1)
    return {"mask": mask.reshape(weight.shape)}


# The masks that there are for four numbers.
PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def _packed_inputs(draw: Draw, n: int, fours: int) -> Inputs:
    """Any two of four, not only the largest; some of those that are kept may be 0."""
    weight = draw.array((n, 4 * fours), draw.choice(("float32", "float64")))
    mask = np.zeros((n * fours, 4), bool)
    chosen = draw.array((n * fours,), "int64", 0, 5)
    np.put_along_axis(mask, np.array(PAIRS)[chosen], True, 1)
    weight[draw.integer(0, n - 1)] *= draw.choice((1, 0))
    return {
        "weight": weight,
        "mask": mask.reshape(weight.shape),
        "layout": layout(draw),
    }


def _packed_expected(
    weight: np.ndarray, mask: np.ndarray, layout: str
) -> dict[str, Any]:
    rows = len(weight)
    places: list[list[int]] = []
    for row in mask:
        found = [int(c) % 4 for c in np.flatnonzero(row)]
        found += [0] * (-len(found) % 4)
        codes = zip(found[::4], found[1::4], found[2::4], found[3::4])
        places.append([a | b << 2 | c << 4 | d << 6 for a, b, c, d in codes])
    made = np.array(places, np.uint8).view(np.int8).reshape(rows, -1)
    return {"values": weight[mask].reshape(rows, -1), "places": made}


def _unpacked_inputs(draw: Draw, n: int, fours: int) -> Inputs:
    given = _packed_inputs(draw, n, fours)
    return _packed_expected(given["weight"], given["mask"], "")


def _unpacked_expected(values: np.ndarray, places: np.ndarray) -> dict[str, Any]:
    rows, half = values.shape
    weight = np.zeros((rows, 2 * half), values.dtype)
    bits = np.unpackbits(places.view(np.uint8), axis=1, bitorder="little")
    for row in range(rows):
        for i in range(half):
            low, high = bits[row, 2 * i : 2 * i + 2]
            weight[row, 4 * (i // 2) + low + 2 * high] = values[row, i]
    return {"weight": weight}


FOURS = {"n": (1, 3), "fours": (1, 4)}
FOUR_EDGES = sizes_of("n fours", (1, 1), (1, 2), (2, 3), (7, 9))
TWOS = (
    Check(
        *("a17.3", "two_of_four", calls.twos, _twos_inputs, _twos_expected),
        *(FOURS, FOUR_EDGES),
        oracle=DEFINITION,
        hint="Each four has two, also four that are equal: which two are these?",
    ),
    Check(
        *("a17.3", "pack_two_of_four", calls.packed),
        *(_packed_inputs, _packed_expected, FOURS, FOUR_EDGES),
        oracle=DEFINITION,
        hint="The mask says what is kept, whatever the numbers are. Write the bits of "
        "a byte down: which place has the lowest ones? What if a byte is not full?",
    ),
    Check(
        *("a17.3", "unpack_two_of_four", calls.unpacked),
        *(_unpacked_inputs, _unpacked_expected, FOURS, FOUR_EDGES),
        oracle=DEFINITION,
        hint="Which four does value i belong to? A byte above 127 is a negative int8: "
        "are its two highest bits still right?",
    ),
)

# ---------------------------------------------------------------------------- feedback


def _uneven(a: np.ndarray) -> np.ndarray:
    """No two are equal, and none is half way between two steps."""
    made: np.ndarray = a * (1 + 0.01 * np.sin(1 + np.arange(a.size).reshape(a.shape)))
    return made + 1e-3 * np.cos(np.arange(a.size).reshape(a.shape))


def _fed(draw: Draw, m: int, k: int) -> np.ndarray:
    """Inputs [m, k] that go together; a column may be 0."""
    x = _uneven(draw.array((m, k), "float64"))
    x += draw.choice((0.0, 2.0)) * x[:, :1]
    if k > 1 and draw.choice((False, True)):
        x[:, draw.integer(0, k - 1)] = 0
    return x


def _damped(x: np.ndarray, damping: float) -> np.ndarray:
    h = np.einsum("mi,mj->ij", x, x)
    return h + damping * np.trace(h) / len(h) * np.eye(len(h))


def _factor_inputs(draw: Draw, m: int, k: int) -> Inputs:
    return {"x": _fed(draw, m, k), "damping": draw.choice((0.01, 0.1, 1.0))}


def _factor_expected(x: np.ndarray, damping: float) -> dict[str, Any]:
    """H = V V^T with V upper, by Cholesky from the other end; U is V's inverse."""
    v = np.linalg.cholesky(_damped(x, damping)[::-1, ::-1])[::-1, ::-1]
    return {"U": np.triu(np.linalg.inv(v)), "x": x}


def _best_rest(w: np.ndarray, h: np.ndarray, scale: np.ndarray, most: int) -> Any:
    """Round column by column; those behind are, each time, the ones with the smallest
    error of outputs, by the equations of least squares."""
    q, now = np.zeros_like(w), w
    for k in range(w.shape[1]):
        step = np.where(scale > 0, scale, 1)
        q[:, k] = np.clip(np.rint(now[:, k] / step), -most, most)
        done, rest = slice(0, k + 1), slice(k + 1, None)
        off = w[:, done] - scale[:, None] * q[:, done]
        now = w.copy()
        now[:, rest] += np.linalg.solve(h[rest, rest], h[rest, done] @ off.T).T
    return q.astype(np.int8)


def _rounded_inputs(draw: Draw, n: int, k: int, m: int) -> Inputs:
    weight = _uneven(draw.array((n, k), "float64"))
    if draw.choice((False, True)):
        weight[-1] = 0
    return {
        "weight": weight,
        "x": _fed(draw, m, k),
        "bits": draw.choice((4, 3, 2, 8)),
        "damping": draw.choice((0.01, 0.1)),
    }


def _rounded_expected(
    weight: np.ndarray, x: np.ndarray, bits: int, damping: float
) -> dict[str, Any]:
    most = 2 ** (bits - 1) - 1
    scale = np.abs(weight).max(1) / most
    return {"q": _best_rest(weight, _damped(x, damping), scale, most), "scale": scale}


def _network_inputs(draw: Draw, layers: int, width: int) -> Inputs:
    sizes = [draw.integer(2, width) for _ in range(layers + 1)]
    pairs = list(pairwise(sizes))
    return {
        "weights": [_uneven(draw.array((b, a), "float64")) for a, b in pairs],
        "biases": [draw.array((b,), "float64", 0.5, 1) for _, b in pairs],
        "between": [draw.choice(("relu", "tanh", "nothing")) for _ in pairs[1:]],
        "x": _fed(draw, 12, sizes[0]),
        "bits": draw.choice((3, 2, 4)),
    }


def _network_expected(
    weights: Sequence[np.ndarray], biases: Sequence[np.ndarray],
    between: Sequence[str], x: np.ndarray, bits: int,
) -> dict[str, Any]:  # fmt: skip
    found = []
    for weight, bias, before in zip(weights, biases, ("nothing", *between)):
        x = {"relu": np.maximum(x, 0), "tanh": np.tanh(x), "nothing": x}[before]
        made = _rounded_expected(weight, x, bits, 0.01)
        found.append(made["q"])
        x = x @ (made["scale"][:, None] * made["q"]).T + bias
    return {"q": found, "out": x, "the given network is as it was": True}


FEEDBACK = (
    Check(
        *("a17.4", "feedback_factor", calls.factor, _factor_inputs, _factor_expected),
        {"m": (1, 6), "k": (1, 5)},
        sizes_of("m k", (1, 1), (1, 4), (40, 12)),
        tolerance=CLOSE,
        oracle=DEFINITION,
        hint="Multiply U^T U by the damped X^T X: is it the identity? Is U upper "
        "triangular, and is the mean that of the diagonal?",
    ),
    Check(
        *("a17.4", "round_with_feedback", calls.rounded),
        *(_rounded_inputs, _rounded_expected),
        {"n": (1, 4), "k": (1, 5), "m": (1, 8)},
        sizes_of("n k m", (1, 1, 1), (3, 6, 2), (8, 12, 40)),
        tolerance=CLOSE,
        oracle=DEFINITION,
        hint="Print what is left of a weight of one row and two columns by hand: how "
        "much does the second one change for what the first one lost? Does the size "
        "of a step change?",
    ),
    Check(
        *("a17.4", "round_linears", calls.network, _network_inputs, _network_expected),
        {"layers": (1, 3), "width": (2, 5)},
        sizes_of("layers width", (1, 2), (3, 6)),
        tolerance=CLOSE,
        examples=15,
        oracle=DEFINITION,
        hint="What reaches the second layer: what the first one was, or what it has "
        "become? And which layers are between?",
    ),
)

# ---------------------------------------------------------------------------- a teacher


def _taught_inputs(draw: Draw, n: int, classes: int) -> Inputs:
    far = draw.choice((1.0, 1.0, 300.0))
    return {
        "student": far * draw.array((n, classes), "float64"),
        "teacher": far * draw.array((n, classes), "float64"),
        "target": draw.array((n,), "int64", 0, classes - 1),
        "temperature": draw.choice((1.0, 4.0, 0.5)),
        "alpha": draw.choice((0.5, 0.0, 1.0, 0.9)),
    }


def _taught_expected(
    student: np.ndarray, teacher: np.ndarray, target: np.ndarray, temperature: float,
    alpha: float,
) -> dict[str, Any]:  # fmt: skip
    leaf, rows = as_torch(student, True), np.arange(len(target))
    q = (leaf / temperature).log_softmax(1)
    p = (as_torch(teacher) / temperature).log_softmax(1)
    soft = (p.exp() * (p - q)).sum(1).mean()
    hard = -leaf.log_softmax(1)[rows, target].mean()
    loss = alpha * temperature**2 * soft + (1 - alpha) * hard
    loss.backward()
    return {
        "loss": loss.detach().numpy(),
        "grad": leaf.grad.numpy(),
        "nothing learns through the teacher": True,
    }


TEACHER = (
    Check(
        *("a17.5", "distillation_loss", calls.taught, _taught_inputs, _taught_expected),
        {"n": (1, 4), "classes": (2, 5)},
        sizes_of("n classes", (1, 2), (9, 10)),
        tolerance=1e-9,
        hint="Is the mean over rows, or over all numbers? Which of the two "
        "distributions is in front of the logarithm, and what is T squared good for?",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (*BYTES, *MASKS, *TWOS, *FEEDBACK, *TEACHER)
