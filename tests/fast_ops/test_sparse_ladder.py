"""The steps of the sparse ladder: all give the product, whatever the rows are."""

from __future__ import annotations

import numpy as np
import pytest

from fast_ops import threads
from fast_ops.sparse_ladder import LADDER
from minitorch.backend import get_backend

CPU = get_backend("cpu")
LENGTHS = {
    "no rows": [],
    "one element": [1],
    "empty rows": [0] * 200,
    "rows alike": [7] * 65,
    "one long row": [0, 3, 20_000, 0, 1],
    "long rows at the end": [1] * 300 + [900, 0, 1200],
}


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("rung", LADDER)
def test_rungs_multiply(rung, name):
    rng = np.random.default_rng(0)
    lengths = np.array(LENGTHS[name], np.int64)
    crow = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    col = rng.integers(0, 50, crow[-1])
    values = rng.uniform(0.5, 1, col.size).astype(np.float32)
    x = rng.uniform(0.5, 1, 50).astype(np.float32)
    expected = np.zeros(lengths.size)
    np.add.at(expected, np.repeat(np.arange(lengths.size), lengths), values * x[col])
    given = [CPU.from_numpy(a) for a in (crow, col, values, x)]
    outs = []
    before = threads.get_num_threads()
    for count in (1, threads.max_num_threads()):
        threads.set_num_threads(count)
        outs.append(np.array(CPU.to_numpy(rung(*given))))
    threads.set_num_threads(before)
    np.testing.assert_allclose(outs[0], expected, rtol=1e-4)
    np.testing.assert_array_equal(*outs)


def test_the_benchmark_draws_the_ladder() -> None:
    from minitorch.bench import ladder_cases
    from minitorch.bench.run import is_wrong

    cases = list(ladder_cases("sparse", 300))
    names = [rung.__name__ for rung in LADDER]
    assert [case.name for case in cases] == [
        *names, *(f"{name}, long rows" for name in names)
    ]  # fmt: skip
    assert not any(is_wrong(case, *case.build()) for case in cases)
