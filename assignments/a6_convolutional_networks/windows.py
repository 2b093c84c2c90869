"""What convolutions and pooling of a6 are checked with; the oracle is PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from assignments.a6_convolutional_networks import calls
from assignments.checks import Check, Inputs, on_all_cores
from assignments.draw import Draw, layout
from assignments.oracles import as_torch, backward, torch_gradients

FLOATS = ("float32", "float64")
SIMPLE, CPU = ("simple",), ("cpu",)


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

    a, w, b = (as_torch(v, True) for v in (x, weight, bias))
    return torch_gradients(conv1d(a, w, b, **options), grad, x=a, weight=w, bias=b)


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

    return {"out": conv1d(as_torch(x), as_torch(weight), **options).numpy()}


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
    *on_all_cores({"a6.1": ("_conv1d",)}, calls.on_all_cores),
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

    out = conv2d(as_torch(x), as_torch(weight), as_torch(bias), **options)
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

    x = as_torch(np.zeros(shape, grad.dtype), True)
    backward(conv2d(x, as_torch(weight), None, **options), grad)
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

    weight = as_torch(np.zeros(shape, grad.dtype), True)
    backward(conv2d(as_torch(x), weight, None, **options), grad)
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

    a, w, b = (as_torch(v, n) for v, n in zip((x, weight, bias), wanted))
    return torch_gradients(conv2d(a, w, b, **options), grad, x=a, weight=w, bias=b)


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


def _window_check(
    task: str,
    sizes: Any,
    edges: Any,
    name: str,
    call: Any,
    inputs: Any,
    expected: Any,
    hint: str,
    devices: tuple[str, ...] | None = SIMPLE,
) -> Check:
    """A check of a task whose inputs have windows."""
    return Check(
        *(task, name, call, inputs, expected, sizes, edges),
        length=_terms,
        examples=12,
        devices=devices,
        hint=hint,
    )


_conv = partial(_window_check, "a6.2", IMAGE, IMAGE_EDGES)


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


def _pooled_size(size: Sequence[int], how: dict[str, Any]) -> tuple[int, ...]:
    lines = zip(size, *(how[name] for name in ("kernel", "stride", "padding")))
    return tuple(_outputs(*line, dilation=1) for line in lines)


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

    values, index = max_pool2d(as_torch(x), kernel, return_indices=True, **how)
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
    zeros = as_torch(np.zeros((n, c, h * w), grad.dtype))
    places = as_torch(index).flatten(2)
    flat = zeros.scatter_add(2, places, as_torch(grad).flatten(2))
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

    a = as_torch(x, True)
    out = avg_pool2d(a, kernel, count_include_pad=count_include_pad, **how)
    return torch_gradients(out, grad, x=a)


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

    a = as_torch(x, True)
    pool = functional.max_pool2d if kind == "max" else functional.avg_pool2d
    return torch_gradients(pool(a, kernel, **how), grad, x=a)


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


_pool = partial(_window_check, "a6.3", POOL, POOL_EDGES)


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
