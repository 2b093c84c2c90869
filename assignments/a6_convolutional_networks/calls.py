"""What a6 runs in the student's process: convolutions, pooling, losses, training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from assignments.calling import (
    called,
    gradients,
    is_shared,
    operand,
    operands_of,
    raised,
    read,
    results,
    tensor,
)

Pair = Sequence[int]


def _window(
    stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """The options of a convolution, in the order in which the library takes them."""
    return tuple(stride), tuple(padding), tuple(dilation), groups


def _leaf(device: str, array: np.ndarray | None, wanted: bool = True) -> Any:
    return None if array is None else tensor(device, array, requires_grad=wanted)


# -------------------------------------------------------------------- one dimension


def axis(
    device: str, size: int, kernel: int, stride: int, padding: int, dilation: int
) -> dict[str, Any]:
    """`out_size` and `taps`, of which the order does not matter."""
    from minitorch.simple_ops import conv

    options = (size, kernel, stride, padding, dilation)
    found = [tuple(tap) for tap in conv.taps(*options)]
    return {"out_size": conv.out_size(*options), "taps": sorted(found)}


def sequences(
    device: str,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    grad: np.ndarray,
    **options: int,
) -> dict[str, Any]:
    """`conv1d`, and its gradients."""
    from minitorch.functions.conv import conv1d

    a, w, b = (_leaf(device, v) for v in (x, weight, bias))
    out = conv1d(a, w, b, **options)
    return gradients(out, grad, x=a, weight=w, bias=b)


def direct(
    device: str, x: np.ndarray, weight: np.ndarray, **options: int
) -> dict[str, Any]:
    """The kernel `_conv1d`, by its launcher."""
    from fast_ops.conv_direct import conv1d_direct

    run = partial(conv1d_direct, **options)
    return called(run, operands_of(device, x=x, weight=weight))


def on_all_cores(device: str, name: str, n: int) -> dict[str, Any]:
    """Whether the work of `_conv1d` on n sequences is shared among the cores."""
    from fast_ops.conv_direct import _conv1d

    x, weight, out = np.ones((n, 1, 3)), np.ones((3, 1, 2)), np.empty((n, 3, 2))
    return {"shared": is_shared(_conv1d, x, weight, out, 1, 0, 1)}


# ------------------------------------------------------------------- two dimensions


def images(
    device: str,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    layout: str,
    **options: Any,
) -> dict[str, Any]:
    """The backend's `conv2d`."""
    from minitorch.backend import get_backend

    run, how = get_backend(device).conv2d, _window(**options)
    given = {"x": operand(device, x, layout), "weight": operand(device, weight)}
    if bias is None:
        return called(run, given, None, *how)
    return called(run, {**given, "bias": operand(device, bias)}, *how)


def input_gradient(
    device: str,
    grad: np.ndarray,
    weight: np.ndarray,
    shape: Sequence[int],
    **options: Any,
) -> dict[str, Any]:
    """The backend's `conv2d_backward_input`."""
    from minitorch.backend import get_backend

    run = get_backend(device).conv2d_backward_input
    given = operands_of(device, grad=grad, weight=weight)
    return called(run, given, tuple(shape), *_window(**options))


def weight_gradient(
    device: str, grad: np.ndarray, x: np.ndarray, shape: Sequence[int], **options: Any
) -> dict[str, Any]:
    """The backend's `conv2d_backward_weight`."""
    from minitorch.backend import get_backend

    run = get_backend(device).conv2d_backward_weight
    given = operands_of(device, grad=grad, x=x)
    return called(run, given, tuple(shape), *_window(**options))


def conv2d(
    device: str,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    grad: np.ndarray,
    wanted: Sequence[bool],
    **options: Any,
) -> dict[str, Any]:
    """The operation `Conv2d`, and the gradients that are wanted."""
    from minitorch.functions import conv

    a, w, b = (_leaf(device, v, n) for v, n in zip((x, weight, bias), wanted))
    out = conv.conv2d(a, w, b, *_window(**options))
    return gradients(out, grad, x=a, weight=w, bias=b)


# -------------------------------------------------------------------------- pooling


def maxima(
    device: str,
    x: np.ndarray,
    layout: str,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> dict[str, Any]:
    """The backend's `max_pool2d`."""
    from minitorch.backend import get_backend

    a = operand(device, x, layout)
    values, index = get_backend(device).max_pool2d(
        a, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation)
    )
    return results({"values": values, "index": index}, {"x": a})


def maxima_backward(
    device: str, grad: np.ndarray, index: np.ndarray, shape: Sequence[int]
) -> dict[str, Any]:
    """The backend's `max_pool2d_backward`."""
    from minitorch.backend import get_backend

    given = operands_of(device, grad=grad, index=index)
    return called(get_backend(device).max_pool2d_backward, given, tuple(shape))


def means(
    device: str,
    x: np.ndarray,
    grad: np.ndarray,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    count_include_pad: bool,
) -> dict[str, Any]:
    """The backend's `avg_pool2d` and `avg_pool2d_backward`."""
    from minitorch.backend import get_backend

    a, g = operand(device, x), operand(device, grad)
    options = (tuple(kernel), tuple(stride), tuple(padding), count_include_pad)
    backend = get_backend(device)
    out = backend.avg_pool2d(a, *options)
    back = backend.avg_pool2d_backward(g, x.shape, *options)
    return results({"out": out, "grad_x": back}, {"x": a, "grad": g})


def pooled(
    device: str,
    kind: str,
    x: np.ndarray,
    grad: np.ndarray,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
) -> dict[str, Any]:
    """The operation `MaxPool2d` or `AvgPool2d`, and its gradient."""
    from minitorch.functions import pool

    a = _leaf(device, x)
    options = (tuple(kernel), tuple(stride), tuple(padding))
    out = (
        pool.max_pool2d(a, *options)[0]
        if kind == "max"
        else pool.avg_pool2d(a, *options)
    )
    return gradients(out, grad, x=a)


# --------------------------------------------------------- softmax and cross-entropy


def probabilities(
    device: str, fn: str, a: np.ndarray, dim: int, layout: str
) -> dict[str, Any]:
    """The backend's `softmax` or `log_softmax`."""
    from minitorch.backend import get_backend

    backend = get_backend(device)
    run = backend.softmax if fn == "softmax" else backend.log_softmax
    return called(run, {"a": operand(device, a, layout)}, dim)


def slopes(
    device: str, fn: str, a: np.ndarray, dim: int, grad: np.ndarray, again: np.ndarray
) -> dict[str, Any]:
    """The gradient of `softmax` or `log_softmax`, and the gradient of that."""
    x, g = tensor(device, a, requires_grad=True), tensor(device, grad)
    out = x.softmax(dim) if fn == "softmax" else x.log_softmax(dim)
    out.backward(g, create_graph=True)
    first, x.grad = x.grad, None
    first.backward(tensor(device, again))
    return {"grad_a": read(first), "grad_of_grad": read(x.grad)}


def losses(
    device: str, logits: np.ndarray, target: np.ndarray, ignore_index: int
) -> dict[str, Any]:
    """The backend's `cross_entropy`."""
    from minitorch.backend import get_backend

    given = operands_of(device, logits=logits, target=target)
    lost, total = get_backend(device).cross_entropy(*given.values(), ignore_index)
    return results({"losses": lost, "logsumexp": total}, given)


def refused(
    device: str, logits: np.ndarray, target: np.ndarray, ignore_index: int
) -> dict[str, Any]:
    """The same with a target that is no class."""
    return raised(lambda: losses(device, logits, target, ignore_index))


def losses_backward(
    device: str,
    grad: np.ndarray,
    logits: np.ndarray,
    target: np.ndarray,
    logsumexp: np.ndarray,
    ignore_index: int,
) -> dict[str, Any]:
    """The backend's `cross_entropy_backward`."""
    from minitorch.backend import get_backend

    given = operands_of(
        device, grad=grad, logits=logits, target=target, logsumexp=logsumexp
    )
    return called(get_backend(device).cross_entropy_backward, given, ignore_index)


# -------------------------------------------------------------------------- dropout


def dropped(
    device: str, x: np.ndarray, p: float, seed: int, offset: int, layout: str
) -> dict[str, Any]:
    """The backend's `dropout`."""
    from minitorch.backend import get_backend

    given = {"x": operand(device, x, layout)}
    return called(get_backend(device).dropout, given, p, seed, offset)


def dropout(
    device: str, x: np.ndarray, grad: np.ndarray, p: float, seed: int, offset: int
) -> dict[str, Any]:
    """The operation `Dropout`, and its gradient."""
    from minitorch.functions.random import Dropout

    a = _leaf(device, x)
    return gradients(Dropout.apply(a, p, seed, offset), grad, x=a)


# ------------------------------------------------------------------------- training


SHAPES = {
    "conv1.weight": (8, 1, 5, 5),
    "conv1.bias": (8,),
    "conv2.weight": (16, 8, 3, 3),
    "conv2.bias": (16,),
    "output.weight": (10, 400),
    "output.bias": (10,),
}


def parameters(seed: int) -> dict[str, np.ndarray]:
    """Parameters of the network, by a seed: too many numbers to print."""
    random = np.random.default_rng([seed, 1])
    return {
        name: (random.uniform(-2, 2, shape) / max(2, np.prod(shape[1:])) ** 0.5).astype(
            np.float32
        )
        for name, shape in SHAPES.items()
    }


def pictures(seed: int, n: int) -> np.ndarray:
    """Images [n, 1, 28, 28] by a seed: blocks of 4 x 4 pixels from 0 to 1."""
    random = np.random.default_rng([seed, 2])
    blocks = random.uniform(0, 1, (n, 1, 7, 7)).astype(np.float32)
    return np.kron(blocks, np.ones((4, 4), np.float32))


def _network(device: str, seed: int, p: float = 0.0) -> Any:
    from assignments.a6_convolutional_networks import mnist

    network = mnist.Network(p, device)
    given = {name: tensor(device, value) for name, value in parameters(seed).items()}
    network.load_state_dict(given)
    return network


def scores(device: str, seed: int, n: int) -> dict[str, Any]:
    """The outputs of a network with given parameters."""
    return {"scores": read(_network(device, seed)(tensor(device, pictures(seed, n))))}


def steps(device: str, seed: int, labels: np.ndarray, lr: float) -> dict[str, Any]:
    """The losses of two steps after a prediction, and the parameters after them."""
    from assignments.a6_convolutional_networks import mnist
    from minitorch import optim

    network = _network(device, seed).eval()
    optimizer = optim.SGD(network.parameters(), lr=lr)
    x, y = tensor(device, pictures(seed, len(labels))), tensor(device, labels)
    lost = [float(mnist.step(network, optimizer, x, y)) for _ in range(2)]
    after = {name: read(v).reshape(-1) for name, v in network.state_dict().items()}
    return {"losses": lost, "training": network.training, **after}


def predictions(device: str, seed: int, n: int, train: bool) -> dict[str, Any]:
    """What a network with much dropout reads, and in which mode it is afterwards."""
    from assignments.a6_convolutional_networks import mnist

    network = _network(device, seed, p=0.9).train(train)
    found = mnist.predict(network, tensor(device, pictures(seed, n)))
    return {"digits": read(found), "training": network.training}


def learned(
    device: str,
    images: np.ndarray,
    labels: np.ndarray,
    tests: np.ndarray,
    count: int,
    seed: int,
) -> dict[str, Any]:
    """Train on some digits: the losses, and what is read in others."""
    import minitorch
    from assignments.a6_convolutional_networks import mnist
    from minitorch import optim

    minitorch.manual_seed(seed)
    network = mnist.Network(device=device)
    optimizer = optim.Adam(network.parameters(), lr=0.01)
    x, y = mnist.as_tensors(images, labels, device)
    size, lost = 50, []
    for number in range(count):
        rows = slice(number * size % len(labels), number * size % len(labels) + size)
        lost.append(float(mnist.step(network, optimizer, x[rows], y[rows])))
    unseen, _ = mnist.as_tensors(tests, np.zeros(len(tests)), device)
    return {"losses": lost, "digits": read(mnist.predict(network, unseen))}
