"""Results do not depend on the number of threads, bit for bit.

`tests/backends` compares the kernels with torch, with as many threads as there
are cores. Here each runs with 1, 2 and 5 threads, on sizes that make many tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from backends.test_attention import attended, operands
from helpers import array_of, loaded, make, numbers
from minitorch import operators
from minitorch.dtypes import float32
from minitorch.tensor_data import TensorData

THREADS = (1, 2, 5)


@pytest.fixture(scope="module")
def mojo() -> Iterator[Any]:
    backend = loaded("mojo")
    from mojo_ops import bridge

    before = bridge.get_num_threads()
    yield backend
    bridge.set_num_threads(before)


def floats(*shape: int, seed: int = 0) -> TensorData:
    return make(numbers(shape, seed=seed), "mojo")


def integers(high: int, *shape: int) -> TensorData:
    return make(np.random.default_rng(0).integers(0, high, shape), "mojo")


def convolutions(mojo: Any) -> Any:
    x, weight, grad = floats(7, 6, 19, 23), floats(10, 3, 3, 3), floats(7, 10, 10, 12)
    how = ((2, 2), (1, 1), (1, 1), 2)
    return (
        mojo.conv2d(x, weight, None, *how),
        mojo.conv2d_backward_input(grad, weight, x.shape, *how),
        mojo.conv2d_backward_weight(grad, x, weight.shape, *how),
    )


def poolings(mojo: Any) -> Any:
    x, window = floats(5, 7, 40, 31), ((3, 3), (2, 2), (1, 1))
    out, index = mojo.max_pool2d(x, *window, (1, 1))
    return (
        out,
        index,
        mojo.max_pool2d_backward(out, index, x.shape),
        mojo.avg_pool2d(x, *window, False),
        mojo.avg_pool2d_backward(out, x.shape, *window, False),
    )


def norms(mojo: Any) -> Any:
    x, grad, weight = floats(130, 77), floats(130, 77, seed=1), floats(77)
    out, mean, rstd = mojo.layer_norm(x, weight, weight, 1e-5)
    y, channels = floats(9, 5, 333), floats(5)
    done, middle, variance = mojo.batch_norm(y, channels, channels, 1e-5)
    return (
        *(out, mean, rstd, done, middle, variance),
        *mojo.layer_norm_backward(grad, x, mean, rstd, weight),
        *mojo.batch_norm_backward(done, y, middle, variance, channels, 1e-5),
    )


def losses(mojo: Any) -> Any:
    x, target = floats(900, 33), integers(33, 900)
    each, total = mojo.cross_entropy(x, target, 3)
    y = mojo.softmax(x, 1)
    return (
        *(each, total, y, mojo.log_softmax(x, 0), mojo.softmax_backward(x, y, 1)),
        mojo.cross_entropy_backward(each, x, target, total, 3),
        *mojo.mean_loss(each, target, 3),
    )


def indexed(mojo: Any) -> Any:
    a, src, index = floats(30, 301), floats(90, 301, seed=1), integers(30, 90, 301)
    rows = integers(30, 90)
    return (
        mojo.gather(a, 0, index),
        mojo.scatter_add(a, 0, index, src),
        mojo.index_select(a, 0, rows),
        mojo.index_add(a, 0, rows, src),
    )


def biased(mojo: Any) -> Any:
    x, bias = floats(300, 77), floats(77)
    return (
        mojo.bias_activation(x, bias, operators.gelu),
        mojo.bias_activation_backward(x, x, bias, operators.gelu_backward),
    )


def attentions(mojo: Any) -> Any:
    """With queries that are cut into parts, and with many heads."""
    made = []
    for sizes in (1, 2, 1, 400, 300, 16, 16), (3, 6, 6, 70, 70, 8, 8):
        for causal in (False, True):
            arrays = operands(sizes, float32)
            made += attended(mojo, arrays, 0.3, causal, drop=(0.1, 5, 7))
    return made


@pytest.mark.parametrize(
    "run", [convolutions, poolings, norms, losses, indexed, biased, attentions]
)
def test_any_number_of_threads_gives_the_same(run: Callable, mojo: Any) -> None:
    from mojo_ops import bridge

    made = []
    for threads in THREADS:
        bridge.set_num_threads(threads)
        made.append([array_of(part) for part in run(mojo)])
    for others in made[1:]:
        for first, other in zip(made[0], others):
            np.testing.assert_array_equal(first, other)
