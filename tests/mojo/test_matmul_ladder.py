"""Each rung of the matmul ladder in Mojo, and the fold's independence of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import loaded, make
from minitorch import operators

RUNGS = ("naive", "loop_order", "vectorized", "parallel", "tiled", "packed")


@pytest.fixture(scope="module")
def backend() -> Any:
    return loaded("mojo")


def rung(name: str) -> Callable:
    from mojo_ops.matmul import LADDER

    return {fn.__name__: fn for fn in LADDER}[f"matmul_{name}"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", RUNGS)
def test_rungs(backend: Any, name: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for M, K, N in ((1, 1, 1), (3, 5, 7), (8, 16, 32), (33, 300, 65), (98, 17, 290)):
        a = rng.standard_normal((M, K)).astype(dtype)
        b = rng.standard_normal((K, N)).astype(dtype)
        out = rung(name)(backend.from_numpy(a), backend.from_numpy(b)).array()
        tolerance = 1e-4 if dtype is np.float32 else 1e-12
        np.testing.assert_allclose(out, a @ b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", RUNGS[:-1])
def test_a_rung_says_what_it_takes(backend: Any, name: str) -> None:
    a = backend.from_numpy(np.ones((3, 4), np.float32))
    for wrong in (a, a.permute((1, 0))):
        with pytest.raises(ValueError, match=rf"matmul_{name}: a is \(3, 4\)"):
            rung(name)(a, wrong)


@pytest.mark.parametrize("layout", ["contiguous", "permuted", "stepped", "negative"])
def test_packed_reads_any_strides(backend: Any, layout: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 90, 70)).astype(np.float32)
    b = rng.standard_normal((2, 70, 110)).astype(np.float32)
    out = rung("packed")(make(a, "mojo", layout), make(b, "mojo", layout))
    np.testing.assert_allclose(out.array(), a @ b, rtol=1e-4, atol=1e-4)


def test_the_same_bits_on_any_number_of_threads(backend: Any) -> None:
    from mojo_ops import bridge

    rng = np.random.default_rng(0)
    x = backend.from_numpy(rng.standard_normal((300, 1003)).astype(np.float32))
    long = backend.from_numpy(rng.standard_normal(200_003).astype(np.float32))

    def results() -> list[np.ndarray]:
        return [
            backend.matmul(x, x.permute((1, 0))).array(),
            backend.reduce(operators.add, x, (0,), 0).array(),
            backend.reduce(operators.add, x, (0, 1), 0).array(),
            backend.reduce(operators.add, long, (0,), 0).array(),
            backend.normal((5000,), x.dtype, 3, 0).array(),
        ]

    before = bridge.get_num_threads()
    try:
        bridge.set_num_threads(1)
        alone = results()
        for threads in (2, 3):
            bridge.set_num_threads(threads)
            for one, other in zip(alone, results()):
                np.testing.assert_array_equal(one, other)
    finally:
        bridge.set_num_threads(before)
