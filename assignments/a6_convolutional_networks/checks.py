"""What a6 is checked with; the oracle is PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assignments.a6_convolutional_networks import calls
from assignments.checks import GPU, AnyCheck, Check, Inputs
from assignments.compare import Difference, difference
from assignments.draw import Draw, layout

FLOATS = ("float32", "float64")
SIMPLE, CPU = ("simple",), ("cpu",)


def _torch(array: np.ndarray | None, wanted: bool = False) -> Any:
    import torch

    if array is None:
        return None
    return torch.from_numpy(np.array(array)).requires_grad_(wanted)


def _backward(out: Any, grad: np.ndarray, **leaves: Any) -> dict[str, Any]:
    """The output, and the gradients of the leaves that want one."""
    out.backward(_torch(grad))
    found = {n: x for n, x in leaves.items() if x is not None and x.requires_grad}
    grads = {f"grad_{n}": x.grad.numpy() for n, x in found.items()}
    return {"out": out.detach().numpy(), **grads}


def _terms(**inputs: Any) -> int:
    """More terms than any sum here has."""
    arrays = [value for value in inputs.values() if isinstance(value, np.ndarray)]
    return 2 * max(array.size for array in arrays)


def _outputs(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _at_least(size: int, kernel: int, padding: int, dilation: int = 1) -> int:
    """The size, or the smallest one in which a window has room."""
    return max(size, dilation * (kernel - 1) + 1 - 2 * padding, 1)


# -------------------------------------------------------------------- one dimension


def _axis_inputs(draw: Draw, size: int, kernel: int) -> Inputs:
    how = {
        "stride": draw.integer(1, 3),
        "padding": draw.integer(0, 3),
        "dilation": draw.integer(1, 3),
    }
    size = _at_least(size, kernel, how["padding"], how["dilation"])
    return {"size": size, "kernel": kernel, **how}


def _axis_expected(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> dict[str, Any]:
    # The padded positions, of which -1 stands for those that are not in the tensor.
    padded = [-1] * padding + list(range(size)) + [-1] * padding
    reach = dilation * (kernel - 1) + 1
    starts = range(0, len(padded) - reach + 1, stride)
    windows = [padded[start : start + reach : dilation] for start in starts]
    found = [(o, i, at) for o, w in enumerate(windows) for i, at in enumerate(w)]
    return {"out_size": len(starts), "taps": [tap for tap in found if tap[2] >= 0]}


def _sequence_inputs(draw: Draw, n: int, c: int, o: int, length: int, k: int) -> Inputs:
    stride, padding = draw.integer(1, 3), draw.integer(0, 2)
    dilation, groups = draw.integer(1, 2), draw.choice((1, 2))
    size = _at_least(length, k, padding, dilation)
    made = _outputs(size, k, stride, padding, dilation)
    return {
        "x": draw.array((n, c * groups, size)),
        "weight": draw.array((o * groups, c, k)),
        "bias": draw.array((o * groups,)) if draw.integer(0, 1) else None,
        "grad": draw.array((n, o * groups, made)),
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }


def _sequence_expected(
    x: np.ndarray, weight: np.ndarray, bias: Any, grad: np.ndarray, **options: int
) -> dict[str, Any]:
    from torch.nn.functional import conv1d

    a, w, b = (_torch(v, True) for v in (x, weight, bias))
    return _backward(conv1d(a, w, b, **options), grad, x=a, weight=w, bias=b)


def _direct_inputs(draw: Draw, n: int, c: int, o: int, length: int, k: int) -> Inputs:
    given = _sequence_inputs(draw, n, c, o, length, k)
    channels = given["weight"].shape[1]
    kept = ("weight", "stride", "padding", "dilation")
    return {
        "x": given["x"][:, :channels].copy(),
        **{name: given[name] for name in kept},
    }


def _direct_expected(
    x: np.ndarray, weight: np.ndarray, **options: int
) -> dict[str, Any]:
    from torch.nn.functional import conv1d

    return {"out": conv1d(_torch(x), _torch(weight), **options).numpy()}


SEQUENCE = {"n": (1, 2), "c": (1, 2), "o": (1, 2), "length": (1, 5), "k": (1, 3)}
SEQUENCE_EDGES = (
    {"n": 0, "c": 2, "o": 1, "length": 4, "k": 2},
    {"n": 1, "c": 1, "o": 1, "length": 1, "k": 1},
    {"n": 2, "c": 1, "o": 3, "length": 2, "k": 5},
    {"n": 1, "c": 3, "o": 2, "length": 33, "k": 4},
)

ONE_DIMENSION = (
    Check(
        "a6.1",
        "out_size and taps",
        calls.axis,
        _axis_inputs,
        _axis_expected,
        {"size": (1, 6), "kernel": (1, 4)},
        ({"size": 1, "kernel": 1}, {"size": 3, "kernel": 5}, {"size": 31, "kernel": 3}),
        examples=25,
        devices=SIMPLE,
        hint="Output number o looks at position o * stride + i * dilation - padding "
        "through weight number i. Positions outside of the tensor are left out.",
        oracle="the definition",
    ),
    Check(
        "a6.1",
        "conv1d",
        calls.sequences,
        _sequence_inputs,
        _sequence_expected,
        SEQUENCE,
        SEQUENCE_EDGES,
        length=_terms,
        examples=15,
        hint="A sequence is an image of height 1: which dim has size 1, and what are "
        "stride, padding and dilation along it?",
    ),
    Check(
        "a6.1",
        "_conv1d",
        calls.direct,
        _direct_inputs,
        _direct_expected,
        SEQUENCE,
        (*SEQUENCE_EDGES, {"n": 3, "c": 5, "o": 7, "length": 257, "k": 9}),
        length=_terms,
        devices=CPU,
        hint="out holds garbage at first. Does a window that begins in the padding, or "
        "ends in it, read outside of x?",
    ),
)

# ------------------------------------------------------------------- two dimensions


def _options(draw: Draw) -> dict[str, Any]:
    def pair(low: int, high: int) -> tuple[int, int]:
        return draw.integer(low, high), draw.integer(low, high)

    how = {"stride": pair(1, 3), "padding": pair(0, 2), "dilation": pair(1, 2)}
    return {**how, "groups": draw.choice((1, 2))}


def _image_inputs(
    draw: Draw, n: int, c: int, o: int, h: int, w: int, kh: int, kw: int
) -> Inputs:
    """An image, a weight, a gradient of the outputs, and options."""
    how, dtype = _options(draw), draw.choice(FLOATS)
    lines = list(zip((h, w), (kh, kw), how["padding"], how["dilation"]))
    size = tuple(_at_least(*line) for line in lines)
    made = (
        _outputs(s, k, step, p, d)
        for s, (_, k, p, d), step in zip(size, lines, how["stride"])
    )
    groups = how["groups"]
    return {
        "x": draw.array((n, c * groups, *size), dtype),
        "weight": draw.array((o * groups, c, kh, kw), dtype),
        "bias": draw.array((o * groups,), dtype) if draw.integer(0, 1) else None,
        "grad": draw.array((n, o * groups, *made), dtype),
        **how,
    }


def _forward_inputs(draw: Draw, **sizes: int) -> Inputs:
    given = _image_inputs(draw, **sizes)
    del given["grad"]
    return {**given, "layout": layout(draw)}


def _forward_expected(
    x: np.ndarray, weight: np.ndarray, bias: Any, layout: str, **options: Any
) -> dict[str, Any]:
    from torch.nn.functional import conv2d

    out = conv2d(_torch(x), _torch(weight), _torch(bias), **options)
    return {"out": out.numpy()}


def _to_input_inputs(draw: Draw, **sizes: int) -> Inputs:
    given = _image_inputs(draw, **sizes)
    shape = given.pop("x").shape
    del given["bias"]
    return {**given, "shape": shape}


def _to_input_expected(
    grad: np.ndarray, weight: np.ndarray, shape: Sequence[int], **options: Any
) -> dict[str, Any]:
    from torch.nn.functional import conv2d

    x = _torch(np.zeros(shape, grad.dtype), True)
    conv2d(x, _torch(weight), None, **options).backward(_torch(grad))
    return {"out": x.grad.numpy()}


def _to_weight_inputs(draw: Draw, **sizes: int) -> Inputs:
    given = _image_inputs(draw, **sizes)
    shape = given.pop("weight").shape
    del given["bias"]
    return {**given, "shape": shape}


def _to_weight_expected(
    grad: np.ndarray, x: np.ndarray, shape: Sequence[int], **options: Any
) -> dict[str, Any]:
    from torch.nn.functional import conv2d

    weight = _torch(np.zeros(shape, grad.dtype), True)
    conv2d(_torch(x), weight, None, **options).backward(_torch(grad))
    return {"out": weight.grad.numpy()}


def _conv_inputs(draw: Draw, **sizes: int) -> Inputs:
    given = _image_inputs(draw, **sizes)
    for name in ("x", "weight", "bias", "grad"):
        if given[name] is not None:
            given[name] = given[name].astype(np.float32)
    all_or_one = ((True,) * 3, (True, False, False), (False, True, False))
    return {**given, "wanted": draw.choice(all_or_one)}


def _conv_expected(
    x: np.ndarray,
    weight: np.ndarray,
    bias: Any,
    grad: np.ndarray,
    wanted: Sequence[bool],
    **options: Any,
) -> dict[str, Any]:
    from torch.nn.functional import conv2d

    a, w, b = (_torch(v, n) for v, n in zip((x, weight, bias), wanted))
    return _backward(conv2d(a, w, b, **options), grad, x=a, weight=w, bias=b)


IMAGE = {
    **{"n": (1, 2), "c": (1, 2), "o": (1, 2)},
    **{"h": (1, 4), "w": (1, 4), "kh": (1, 3), "kw": (1, 3)},
}
IMAGE_EDGES = (
    {"n": 0, "c": 1, "o": 2, "h": 3, "w": 3, "kh": 2, "kw": 2},
    {"n": 1, "c": 1, "o": 1, "h": 1, "w": 1, "kh": 1, "kw": 1},
    {"n": 2, "c": 1, "o": 3, "h": 7, "w": 4, "kh": 3, "kw": 1},
    {"n": 1, "c": 3, "o": 1, "h": 5, "w": 9, "kh": 2, "kw": 4},
)


def _conv(
    name: str,
    call: Any,
    inputs: Any,
    expected: Any,
    hint: str,
    devices: tuple[str, ...] | None = SIMPLE,
) -> Check:
    sizes = (IMAGE, IMAGE_EDGES)
    return Check(
        *("a6.2", name, call, inputs, expected, *sizes),
        length=_terms,
        examples=12,
        devices=devices,
        hint=hint,
    )


TWO_DIMENSIONS = (
    _conv(
        "conv2d",
        calls.images,
        _forward_inputs,
        _forward_expected,
        "Which channels of the image belong to the group of output channel o?",
    ),
    _conv(
        "conv2d_backward_input",
        calls.input_gradient,
        _to_input_inputs,
        _to_input_expected,
        "A pixel that many windows see gets the sum of many gradients.",
    ),
    _conv(
        "conv2d_backward_weight",
        calls.weight_gradient,
        _to_weight_inputs,
        _to_weight_expected,
        "A weight takes part in every position of every image of the batch.",
    ),
    _conv(
        "Conv2d",
        calls.conv2d,
        _conv_inputs,
        _conv_expected,
        "Is there a gradient, of the right shape, for each of x, weight and bias? "
        "ctx.needs_input_grad says which are wanted.",
        None,
    ),
)

# -------------------------------------------------------------------------- pooling


def _windows(draw: Draw, h: int, w: int, kh: int, kw: int) -> dict[str, Any]:
    """Options of a window with room in the image, and the sizes of both."""
    padding = (draw.integer(0, kh // 2), draw.integer(0, kw // 2))
    stride = (draw.integer(1, 3), draw.integer(1, 3))
    return {"kernel": (kh, kw), "stride": stride, "padding": padding}


def _pooled_size(
    size: Sequence[int], how: dict[str, Any], dilation: Sequence[int] = (1, 1)
) -> tuple[int, ...]:
    names = ("kernel", "stride", "padding")
    lines = zip(size, *(how[name] for name in names), dilation)
    return tuple(_outputs(s, k, step, p, d) for s, k, step, p, d in lines)


def _plane(draw: Draw, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    """Numbers of which, half of the time, many are equal."""
    x = draw.array(shape, dtype)
    return np.asarray(np.round(x)) if draw.integer(0, 1) else x


def _max_inputs(draw: Draw, n: int, c: int, h: int, w: int, kh: int, kw: int) -> Inputs:
    how = _windows(draw, h, w, kh, kw)
    dilation = (draw.integer(1, 2), draw.integer(1, 2))
    # A window whose pixels all lie in the padding has no maximum.
    lines = zip((h, w), (kh, kw), how["padding"], dilation)
    size = (max(_at_least(*line), line[-1]) for line in lines)
    x = _plane(draw, (n, c, *size), draw.choice(FLOATS))
    return {"x": x, "layout": layout(draw), **how, "dilation": dilation}


def _max_expected(
    x: np.ndarray, kernel: Any, layout: str, **how: Any
) -> dict[str, Any]:
    from torch.nn.functional import max_pool2d

    values, index = max_pool2d(_torch(x), kernel, return_indices=True, **how)
    return {"values": values.numpy(), "index": index.numpy()}


def _scatter_inputs(
    draw: Draw, n: int, c: int, h: int, w: int, kh: int, kw: int
) -> Inputs:
    grad = draw.array((n, c, kh, kw), draw.choice(FLOATS))
    index = draw.array(grad.shape, "int64", 0, h * w - 1)
    return {"grad": grad, "index": index, "shape": (n, c, h, w)}


def _scatter_expected(
    grad: np.ndarray, index: np.ndarray, shape: Sequence[int]
) -> dict[str, Any]:
    n, c, h, w = shape
    zeros = _torch(np.zeros((n, c, h * w), grad.dtype))
    places = _torch(index).flatten(2)
    flat = zeros.scatter_add(2, places, _torch(grad).flatten(2))
    return {"out": flat.reshape(n, c, h, w).numpy()}


def _mean_inputs(
    draw: Draw, n: int, c: int, h: int, w: int, kh: int, kw: int
) -> Inputs:
    how, dtype = _windows(draw, h, w, kh, kw), draw.choice(FLOATS)
    size = tuple(map(_at_least, (h, w), (kh, kw), how["padding"]))
    x = draw.array((n, c, *size), dtype)
    grad = draw.array((n, c, *_pooled_size(size, how)), dtype)
    return {"x": x, "grad": grad, **how, "count_include_pad": bool(draw.integer(0, 1))}


def _mean_expected(
    x: np.ndarray, grad: np.ndarray, kernel: Any, count_include_pad: bool, **how: Any
) -> dict[str, Any]:
    from torch.nn.functional import avg_pool2d

    a = _torch(x, True)
    out = avg_pool2d(a, kernel, count_include_pad=count_include_pad, **how)
    return _backward(out, grad, x=a)


def _pool_inputs(kind: str) -> Any:
    def inputs(draw: Draw, **sizes: int) -> Inputs:
        given = _mean_inputs(draw, **sizes)
        del given["count_include_pad"]
        x, grad = given["x"].astype(np.float32), given["grad"].astype(np.float32)
        x = np.round(x) if draw.integer(0, 1) else x
        return {**given, "kind": kind, "x": x, "grad": grad}

    return inputs


def _pool_expected(
    kind: str, x: np.ndarray, grad: np.ndarray, kernel: Any, **how: Any
) -> dict[str, Any]:
    from torch.nn import functional

    a = _torch(x, True)
    pool = functional.max_pool2d if kind == "max" else functional.avg_pool2d
    return _backward(pool(a, kernel, **how), grad, x=a)


POOL = {
    **{"n": (1, 2), "c": (1, 2), "h": (1, 5), "w": (1, 5)},
    **{"kh": (1, 3), "kw": (1, 3)},
}
POOL_EDGES = (
    {"n": 0, "c": 1, "h": 3, "w": 3, "kh": 2, "kw": 2},
    {"n": 1, "c": 1, "h": 1, "w": 1, "kh": 1, "kw": 1},
    {"n": 2, "c": 3, "h": 9, "w": 6, "kh": 2, "kw": 3},
    {"n": 1, "c": 2, "h": 5, "w": 12, "kh": 4, "kw": 2},
)


def _pool(
    name: str,
    call: Any,
    inputs: Any,
    expected: Any,
    hint: str,
    devices: tuple[str, ...] | None = SIMPLE,
) -> Check:
    sizes = (POOL, POOL_EDGES)
    return Check(
        *("a6.3", name, call, inputs, expected, *sizes),
        length=_terms,
        examples=12,
        devices=devices,
        hint=hint,
    )


TIES = "Of equal maxima the first one wins, row by row."

POOLING = (
    _pool("max_pool2d", calls.maxima, _max_inputs, _max_expected, TIES),
    _pool(
        "max_pool2d_backward",
        calls.maxima_backward,
        _scatter_inputs,
        _scatter_expected,
        "Two windows can have their maximum at the same pixel.",
    ),
    _pool(
        "avg_pool2d, forward and backward",
        calls.means,
        _mean_inputs,
        _mean_expected,
        "By how many pixels is a window divided that reaches into the padding?",
    ),
    _pool("MaxPool2d", calls.pooled, _pool_inputs("max"), _pool_expected, TIES, None),
    _pool(
        "AvgPool2d",
        calls.pooled,
        _pool_inputs("avg"),
        _pool_expected,
        "What does AvgPool2dInput.apply need to know?",
        None,
    ),
)

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
    return {"out": call(_torch(a), dim).numpy()}


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

    x, g = _torch(a, True), _torch(grad)
    call = torch.softmax if fn == "softmax" else torch.log_softmax
    (first,) = torch.autograd.grad(call(x, dim), x, g, create_graph=True)
    (second,) = torch.autograd.grad(first, x, _torch(again))
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

    a = _torch(logits)
    lost = cross_entropy(a, _torch(target), ignore_index=ignore_index, reduction="none")
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

    a = _torch(logits, True)
    lost = cross_entropy(a, _torch(target), ignore_index=ignore_index, reduction="none")
    lost.backward(_torch(grad))
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
    weights = {name: _torch(v) for name, v in calls.parameters(seed).items()}
    return {"scores": _forward(weights, _torch(calls.pictures(seed, n))).numpy()}


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

    weights = {name: _torch(v, True) for name, v in calls.parameters(seed).items()}
    images = _torch(calls.pictures(seed, len(labels)))
    optimizer = torch.optim.SGD(weights.values(), lr=lr)
    lost = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            _forward(weights, images), _torch(labels)
        )
        loss.backward()
        optimizer.step()
        lost.append(loss.item())
    after = {n: w.detach().numpy().reshape(-1) for n, w in weights.items()}
    return {"losses": lost, **after}


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
        lambda draw, n: {
            "seed": _seed(draw),
            "n": n,
            "train": bool(draw.integer(0, 1)),
        },
        *(_predictions_expected, {"n": (1, 3)}, ({"n": 12},)),
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
