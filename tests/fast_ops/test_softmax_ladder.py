"""The steps of the softmax ladder: all give the softmax of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fast_ops.softmax_ladder import LADDER
from minitorch.backend import get_backend

CPU = get_backend("cpu")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (70, 65), (3, 9000)])
@pytest.mark.parametrize("rung", LADDER)
def test_rungs_are_softmax(rung, shape):
    rng = np.random.default_rng(0)
    a = rng.uniform(-50, 50, shape).astype(np.float32)
    if shape[0] > 2 and shape[1]:
        a[0] = np.sort(a[0])  # a new maximum with each number
        a[1] = -np.inf  # no number at all: NaN, as in PyTorch
        a[2, : shape[1] // 2] = -np.inf
        a[2] += np.float32(1000)
    out = CPU.to_numpy(rung(CPU.from_numpy(a)))
    expected = torch.tensor(a).double().softmax(-1).numpy()
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("rung", LADDER)
def test_rungs_name_what_they_cannot_take(rung):
    with pytest.raises(ValueError, match=rf"{rung.__name__}: a is float32 \(3,\)"):
        rung(CPU.from_numpy(np.ones(3, np.float32)))


def test_the_benchmark_draws_the_ladder() -> None:
    from minitorch.bench import ladder_cases
    from minitorch.bench.run import is_wrong

    cases = list(ladder_cases("softmax", 70))
    assert [case.name for case in cases] == [rung.__name__ for rung in LADDER]
    assert not any(is_wrong(case, *case.build()) for case in cases)
