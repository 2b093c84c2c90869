"""What a6 is checked with; the oracle is PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assignments.a6_convolutional_networks import calls
from assignments.a6_convolutional_networks.windows import (
    FLOATS,
    ONE_DIMENSION,
    POOLING,
    SIMPLE,
    TWO_DIMENSIONS,
)
from assignments.checks import GPU, AnyCheck, Check, Inputs, sizes_of
from assignments.compare import Difference, difference
from assignments.draw import Draw, layout
from assignments.oracles import as_torch, backward

# --------------------------------------------------------- softmax and cross-entropy


def _line_inputs(fn: str) -> Any:
    def inputs(draw: Draw, dims: int, most: int) -> Inputs:
        shape = tuple(draw.integer(1, most) for _ in range(dims))
        return {
            "fn": fn,
            "a": _scores(draw, shape, draw.choice(FLOATS)),
            "dim": draw.integer(0, dims - 1),
            "layout": layout(draw),
        }

    return inputs


def _scores(draw: Draw, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers of about 1, or so large that their exponentials overflow."""
    large = draw.choice((1.0, 1000.0))
    return (draw.array(shape, dtype) * large).astype(dtype)


def _line_expected(fn: str, a: np.ndarray, dim: int, layout: str) -> dict[str, Any]:
    import torch

    call = torch.softmax if fn == "softmax" else torch.log_softmax
    return {"out": call(as_torch(a), dim).numpy()}


def _slope_inputs(fn: str) -> Any:
    def inputs(draw: Draw, dims: int, most: int) -> Inputs:
        shape = tuple(draw.integer(1, most) for _ in range(dims))
        arrays = {name: draw.array(shape) for name in ("a", "grad", "again")}
        return {"fn": fn, **arrays, "dim": draw.integer(0, dims - 1)}

    return inputs


def _slope_expected(
    fn: str, a: np.ndarray, dim: int, grad: np.ndarray, again: np.ndarray
) -> dict[str, Any]:
    import torch

    x, g = as_torch(a, True), as_torch(grad)
    call = torch.softmax if fn == "softmax" else torch.log_softmax
    (first,) = torch.autograd.grad((call(x, dim) * g).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * as_torch(again)).sum(), x)
    return {"grad_a": first.detach().numpy(), "grad_of_grad": second.numpy()}


IGNORED = (-100, 0, -1)


def _target(draw: Draw, rows: int, classes: int, ignored: int) -> np.ndarray:
    labels = draw.array((rows,), "int64", 0, classes - 1)
    left_out = draw.array((rows,), "bool")
    return np.where(left_out, np.int64(ignored), labels)


def _loss_inputs(draw: Draw, rows: int, classes: int) -> Inputs:
    logits = _scores(draw, (rows, classes), draw.choice(FLOATS))
    ignored = draw.choice(IGNORED)
    target = _target(draw, rows, classes, ignored)
    return {"logits": logits, "target": target, "ignore_index": ignored}


def _loss_expected(
    logits: np.ndarray, target: np.ndarray, ignore_index: int
) -> dict[str, Any]:
    from torch.nn.functional import cross_entropy

    a = as_torch(logits)
    lost = cross_entropy(
        a, as_torch(target), ignore_index=ignore_index, reduction="none"
    )
    return {"losses": lost.numpy(), "logsumexp": a.logsumexp(1).numpy()}


def _refused_inputs(draw: Draw, rows: int, classes: int) -> Inputs:
    given = _loss_inputs(draw, rows, classes)
    wrong = draw.choice((classes, -2, classes + 3))
    given["target"][draw.integer(0, rows - 1)] = wrong
    return {**given, "ignore_index": -100}


def _loss_backward_inputs(draw: Draw, rows: int, classes: int) -> Inputs:
    given = _loss_inputs(draw, rows, classes)
    logits = given["logits"]
    grad = draw.array((rows,), logits.dtype.name)
    total = _loss_expected(**given)["logsumexp"]
    return {**given, "grad": grad, "logsumexp": total}


def _loss_backward_expected(
    grad: np.ndarray,
    logits: np.ndarray,
    target: np.ndarray,
    logsumexp: np.ndarray,
    ignore_index: int,
) -> dict[str, Any]:
    from torch.nn.functional import cross_entropy

    a = as_torch(logits, True)
    lost = cross_entropy(
        a, as_torch(target), ignore_index=ignore_index, reduction="none"
    )
    backward(lost, grad)
    return {"out": a.grad.numpy()}


LINES = {"dims": (1, 3), "most": (1, 4)}
LINE_EDGES = ({"dims": 1, "most": 1}, {"dims": 3, "most": 9}, {"dims": 2, "most": 40})
ROWS = {"rows": (1, 3), "classes": (1, 4)}
ROW_EDGES = (
    {"rows": 0, "classes": 3},
    {"rows": 1, "classes": 1},
    {"rows": 17, "classes": 10},
    {"rows": 3, "classes": 1025},
)
OVERFLOW = "exp(1000) is infinite. What can be taken out of a sum of exponentials?"


def _lines(fn: str) -> Check:
    return Check(
        *("a6.4", fn, calls.probabilities, _line_inputs(fn), _line_expected),
        *(LINES, LINE_EDGES),
        length=lambda a, **rest: max(a.shape),
        devices=SIMPLE,
        hint=OVERFLOW,
    )


def _slopes(fn: str, name: str) -> Check:
    return Check(
        *("a6.4", f"gradient of {name}", calls.slopes),
        *(_slope_inputs(fn), _slope_expected, LINES, LINE_EDGES),
        length=lambda a, **rest: 8 * max(a.shape),
        examples=12,
        hint="The sum goes along dim, and keeps it: keepdim=True. Its own gradient "
        "is asked for as well: compute with tensors, not with the backend.",
    )


SOFTMAX = (
    _lines("softmax"),
    _lines("log_softmax"),
    Check(
        *("a6.4", "cross_entropy", calls.losses, _loss_inputs, _loss_expected),
        *(ROWS, ROW_EDGES),
        length=lambda logits, **rest: logits.shape[1],
        devices=SIMPLE,
        hint=f"{OVERFLOW} Rows that are ignored have the loss 0.",
    ),
    Check(
        *("a6.4", "a target that is no class", calls.refused, _refused_inputs),
        *(lambda **inputs: {"raises": "IndexError"}, ROWS),
        examples=10,
        devices=SIMPLE,
        oracle="the handout",
    ),
    Check(
        *("a6.4", "cross_entropy_backward", calls.losses_backward),
        *(_loss_backward_inputs, _loss_backward_expected, ROWS, ROW_EDGES),
        # exp(logit - logsumexp) has the error of a difference of large numbers.
        tolerance=1e-3,
        devices=SIMPLE,
        hint="Each row is multiplied by its own grad; rows that are ignored are 0.",
    ),
    _slopes("softmax", "softmax"),
    _slopes("log_softmax", "log_softmax"),
)

# -------------------------------------------------------------------------- dropout

SHARES = (0.5, 0.0, 0.25, 0.9)


def _random_place(draw: Draw) -> dict[str, Any]:
    seed = draw.choice((0, 1 << 40)) + draw.integer(0, 1 << 20)
    return {"p": draw.choice(SHARES), "seed": seed, "offset": draw.integer(0, 1 << 33)}


def _dropped_inputs(draw: Draw, m: int, n: int) -> Inputs:
    x = draw.array((m, n), draw.choice(FLOATS))
    return {"x": x, **_random_place(draw), "layout": layout(draw)}


def _factors(shape: Sequence[int], p: float, seed: int, offset: int) -> np.ndarray:
    """What dropout multiplies with: 0 or 1 / (1 - p), by the definition."""
    from minitorch.simple_ops.random import words

    count = int(np.prod(shape))
    drawn = np.array(list(words(count, seed, offset)), np.int64)
    return np.where(drawn >= p * 2**32, 1 / (1 - p), 0.0).reshape(shape)


def _dropped_expected(
    x: np.ndarray, p: float, seed: int, offset: int, layout: str
) -> dict[str, Any]:
    return {"out": (x * _factors(x.shape, p, seed, offset)).astype(x.dtype)}


def _dropout_inputs(draw: Draw, m: int, n: int) -> Inputs:
    x, grad = draw.array((m, n)), draw.array((m, n))
    return {"x": x, "grad": grad, **_random_place(draw)}


def _dropout_expected(x: np.ndarray, grad: np.ndarray, **where: Any) -> dict[str, Any]:
    factors = _factors(x.shape, **where).astype(x.dtype)
    return {"out": x * factors, "grad_x": grad * factors}


MATRIX = {"m": (1, 4), "n": (1, 5)}
MATRIX_EDGES = ({"m": 0, "n": 3}, {"m": 1, "n": 1}, {"m": 33, "n": 31})

DROPOUT = (
    Check(
        *("a6.5", "dropout", calls.dropped, _dropped_inputs, _dropped_expected),
        *(MATRIX, MATRIX_EDGES),
        devices=SIMPLE,
        hint="What is not dropped is divided by 1 - p. Element i belongs to word i.",
        oracle="the definition",
    ),
    Check(
        *("a6.5", "Dropout", calls.dropout, _dropout_inputs, _dropout_expected),
        *(MATRIX, MATRIX_EDGES),
        hint="Where an element was dropped, nothing comes back; where it was kept, the "
        "gradient is multiplied by the same factor.",
        oracle="the definition",
    ),
)

# ------------------------------------------------------------------------- training


def _seed(draw: Draw) -> int:
    return draw.integer(0, 1 << 30)


def _scores_expected(seed: int, n: int) -> dict[str, Any]:
    weights = {name: as_torch(v) for name, v in calls.parameters(seed).items()}
    return {"scores": _forward(weights, as_torch(calls.pictures(seed, n))).numpy()}


def _forward(weights: dict[str, Any], pictures: Any) -> Any:
    from torch.nn import functional as F

    x = pictures
    for name in ("conv1", "conv2"):
        x = F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
        x = F.max_pool2d(F.relu(x), 2)
    return F.linear(x.flatten(1), weights["output.weight"], weights["output.bias"])


def _steps_inputs(draw: Draw, n: int) -> Inputs:
    labels = draw.array((n,), "int64", 0, 9)
    return {"seed": _seed(draw), "labels": labels, "lr": draw.choice((0.125, 0.5))}


def _steps_expected(seed: int, labels: np.ndarray, lr: float) -> dict[str, Any]:
    import torch

    weights = {name: as_torch(v, True) for name, v in calls.parameters(seed).items()}
    images = as_torch(calls.pictures(seed, len(labels)))
    lost = []
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(
            _forward(weights, images), as_torch(labels)
        )
        # As SGD, which would import a compiler: a second and a half.
        grads = torch.autograd.grad(loss, list(weights.values()))
        with torch.no_grad():
            for weight, grad in zip(weights.values(), grads):
                weight -= lr * grad
        lost.append(loss.item())
    after = {n: w.detach().numpy().reshape(-1) for n, w in weights.items()}
    return {"losses": lost, "training": True, **after}


def _predictions_expected(seed: int, n: int, train: bool) -> dict[str, Any]:
    made = _scores_expected(seed, n)["scores"]
    return {"digits": made.argmax(1), "training": train}


RIGHT = 0.75  # of the unseen digits; chance is 0.1
UNSEEN = 200
_ANSWERS: dict[str, np.ndarray] = {}  # labels of unseen digits, by the pictures


def _learned_inputs(draw: Draw) -> Inputs:
    from minitorch.data import drawn_digits

    seed = draw.integer(0, 1 << 30)
    images, labels = drawn_digits(500, seed)
    tests, answers = drawn_digits(UNSEEN, seed, train=False)
    while len(_ANSWERS) > 8:
        del _ANSWERS[next(iter(_ANSWERS))]
    _ANSWERS[_name(tests)] = answers.astype(np.int64)
    arrays = {"images": images, "labels": labels, "tests": tests}
    whole = {name: array.astype(np.int32) for name, array in arrays.items()}
    return {**whole, "count": 40, "seed": seed}


def _name(pictures: np.ndarray) -> str:
    return hashlib.sha256(pictures.astype(np.uint8).tobytes()).hexdigest()


@dataclass(frozen=True)
class Learns(Check):
    """A network must have learned: its loss falls, and it reads digits it never saw.

    The answers to those never leave this process.
    """

    def judge(self, inputs: Inputs, outputs: Any) -> Difference | None:
        """Why that is not so, or None."""
        right = self.expected(**inputs)
        digits = outputs.get("digits") if isinstance(outputs, dict) else None
        losses = outputs.get("losses") if isinstance(outputs, dict) else None
        if isinstance(digits, np.ndarray) and digits.shape == right["digits"].shape:
            share = float(np.mean(digits == right["digits"]))
            if share < RIGHT:
                return Difference(
                    "digits",
                    "the network does not read digits that it has not seen",
                    f"{share:.0%} right",
                    f"{RIGHT:.0%} or more; guessing is right in 10%",
                )
            right["digits"] = digits
        if isinstance(losses, list) and len(losses) == inputs["count"]:
            first, last = np.mean(losses[:3]), np.mean(losses[-10:])
            if not last < 0.6 * first:
                return Difference(
                    "losses",
                    "the loss does not fall",
                    f"{first:.3f} in the first 3 steps, {last:.3f} in the last 10",
                )
            right["losses"] = losses
        return difference(right, outputs, inputs)


def _learned_expected(tests: np.ndarray, count: int, **rest: Any) -> dict[str, Any]:
    return {"losses": [0.0] * count, "digits": _ANSWERS[_name(tests)].copy()}


# Simulated, a step with one image takes 10 s: on the device cuda this needs a GPU.
TRAINING = (
    Check(
        *("a6.6", "forward", calls.scores),
        lambda draw, n: {"seed": _seed(draw), "n": n},
        *(_scores_expected, {"n": (1, 2)}, ({"n": 1}, {"n": 7})),
        tolerance=1e-4,
        examples=3,
        needs=GPU,
        hint="conv1, ReLU, pooling by 2, the same with conv2, then flatten all dims "
        "but the first, dropout and the linear layer.",
    ),
    Check(
        *("a6.6", "two steps", calls.steps, _steps_inputs, _steps_expected),
        *({"n": (1, 2)}, ({"n": 5},)),
        tolerance=1e-3,
        examples=3,
        needs=GPU,
        hint="Gradients add up: set them to zero before each backward().",
    ),
    Check(
        *("a6.6", "predict", calls.predictions),
        lambda draw, n, train: {"seed": _seed(draw), "n": n, "train": bool(train)},
        *(_predictions_expected, {"n": (1, 3), "train": (0, 1)}),
        sizes_of("n train", (12, 1), (12, 0)),
        examples=4,
        needs=GPU,
        hint="Dropout must be off while predicting; afterwards the network is in the "
        "mode it was in before.",
    ),
    Learns(
        *("a6.6", "learns digits", calls.learned, _learned_inputs, _learned_expected),
        examples=1,
        needs=GPU,
        oracle="the test set",
        hint="Does every step use the gradient of its own batch alone, in training "
        "mode?",
    ),
)

CHECKS: tuple[AnyCheck, ...] = (
    *ONE_DIMENSION,
    *TWO_DIMENSIONS,
    *POOLING,
    *SOFTMAX,
    *DROPOUT,
    *TRAINING,
)
