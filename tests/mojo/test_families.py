"""What the launchers of the device "mojo" decide, and `tests/backends` does not
see: integers of 32 bits as indices, and activations without a loop in Mojo.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import array_of, assert_equal, loaded, make, numbers
from minitorch import operators
from minitorch.dtypes import int32, int64


@pytest.fixture(scope="module")
def mojo() -> Any:
    return loaded("mojo")


def test_indices_may_be_of_either_integer_type(mojo: Any) -> None:
    a, src = make(numbers((6, 5)), "mojo"), make(numbers((4, 5), seed=1), "mojo")
    index, rows = np.array([[5, 0, 2, 1, 5]] * 4), np.array([3, 0, 3, 5])
    for call in (
        lambda kind: mojo.gather(a, 0, make(index.astype(kind), "mojo")),
        lambda kind: mojo.scatter_add(a, 0, make(index.astype(kind), "mojo"), src),
        lambda kind: mojo.index_select(a, 0, make(rows.astype(kind), "mojo")),
        lambda kind: mojo.index_add(a, 0, make(rows.astype(kind), "mojo"), src),
    ):
        assert_equal(call(int32.numpy), array_of(call(int64.numpy)))


def test_targets_may_be_of_either_integer_type(mojo: Any) -> None:
    x, target = make(numbers((7, 3)), "mojo"), np.array([0, 2, 1, 1, -5, 0, 2])
    results = []
    for kind in (int32, int64):
        t = make(target.astype(kind.numpy), "mojo")
        losses, total = mojo.cross_entropy(x, t, -5)
        dx = mojo.cross_entropy_backward(losses, x, t, total, -5)
        results.append([array_of(r) for r in (*mojo.mean_loss(losses, t, -5), dx)])
    for narrow, wide in zip(*results):
        np.testing.assert_array_equal(narrow, wide)


def cube_of_next(x: float) -> float:
    return (x + 1) * (x + 1) * (x + 1)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_function_of_the_user_as_activation(mojo: Any, in_place: bool) -> None:
    a, bias = numbers((9, 5)), numbers((5,), seed=1)
    x = make(a, "mojo")
    out = mojo.bias_activation(
        x, make(bias, "mojo"), cube_of_next, x if in_place else None
    )
    assert (out is x) == in_place
    np.testing.assert_allclose(array_of(out), (a + bias + 1) ** 3, rtol=1e-5)


def test_activation_into_a_window_with_gaps(mojo: Any) -> None:
    a, bias = numbers((9, 5)), numbers((5,), seed=1)
    out = make(np.zeros((9, 5), np.float32), "mojo", "stepped")
    mojo.bias_activation(make(a, "mojo"), make(bias, "mojo"), operators.relu, out)
    assert_equal(out, np.maximum(a + bias, 0))


def test_kernels_read_the_type_from_the_array(mojo: Any) -> None:
    one = mojo.from_numpy(
        np.arange(4, dtype=np.float32)[::2][1:]
    )  # a stride of 8 bytes
    assert_equal(mojo.map(operators.neg, one), np.float32([-2]))
    assert_equal(mojo.cumsum(one, 0), np.float32([2]))
    a = make(numbers((6, 5)), "mojo")
    for kind in (np.dtype("l"), np.dtype("q")):  # int64 twice, by other numbers
        index = mojo.from_numpy(np.array([3, 0, 5], kind))
        assert_equal(mojo.index_select(a, 0, index), array_of(a)[[3, 0, 5]])
        assert_equal(mojo.cumsum(index, 0), np.array([3, 3, 8]))


def test_asking_what_is_not_in_mojo_compiles_nothing(mojo: Any) -> None:
    from mojo_ops.backend import MojoBackend
    from mojo_ops.bridge import FlatKernels
    from mojo_ops.fallback import names

    class Fresh(MojoBackend):
        _norm = FlatKernels("there is no such file")

    assert "sort" in names(Fresh()) and "layer_norm" not in names(Fresh())
