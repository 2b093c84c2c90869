"""Sparse matrices on the GPU, against SciPy and the CPU backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from fast_ops import sparse as on_cpu
from fast_ops.memory import from_numpy as cpu
from fast_ops.memory import to_numpy as cpu_numpy
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import pick

pytest.importorskip("numba_cuda")
from cuda_ops import memory, sparse
from cuda_ops.ladders import sparse as sparse_ladder
from cuda_ops.runtime.launch import SIMULATED
from cuda_ops.simulator.watch import watching

BLOCK = sparse.THREADS // sparse.LANES  # rows of a block
Matrix = scipy.sparse.csr_matrix


def random_matrix(rows: int, cols: int, density: float, seed: int = 0) -> Matrix:
    """Columns of a row in any order, one row of the matrix empty, no place twice."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(rows, cols)) * (rng.random((rows, cols)) < density)
    dense[rows // 2] = 0
    matrix = scipy.sparse.csr_matrix(dense)
    for i in range(rows):
        part = slice(matrix.indptr[i], matrix.indptr[i + 1])
        order = rng.permutation(part.stop - part.start)
        matrix.indices[part] = matrix.indices[part][order]
        matrix.data[part] = matrix.data[part][order]
    return matrix


def one_long_row(rows: int, cols: int) -> Matrix:
    """All columns in row 1, hardly any elsewhere."""
    dense = np.zeros((rows, cols))
    dense[1] = np.random.default_rng(0).normal(size=cols)
    dense[0, 0] = dense[-1, -1] = 2.0
    return scipy.sparse.csr_matrix(dense)


def twice() -> Matrix:
    """A place that comes three times, and rows without elements around it."""
    crow, col = [0, 0, 5, 5], [3, 1, 3, 0, 3]
    return scipy.sparse.csr_matrix((np.arange(1.0, 6.0), col, crow), (3, 4))


MATRICES: dict[str, Matrix] = {
    "small": random_matrix(5, 7, 0.5),
    "block": random_matrix(BLOCK, 40, 0.2),
    "block + 1": random_matrix(BLOCK + 1, 33, 0.6),
    "sparse": random_matrix(2 * BLOCK - 1, pick(40, 3000), 0.04),
    "dense": random_matrix(9, pick(40, 1100), 1.0),
    "long row": one_long_row(20, pick(70, 9000)),
    "twice": twice(),
    "empty": scipy.sparse.csr_matrix((4, 3)),
    "no rows": scipy.sparse.csr_matrix((0, 3)),
}
COLUMNS = pick([0, 1, 3, 20, 36], [0, 1, 3, 4, 16, 20, 33, 36, 128])


def parts(matrix: Matrix, kind: str, index: str) -> list[np.ndarray]:
    arrays = matrix.indptr, matrix.indices, matrix.data
    return [x.astype(k) for x, k in zip(arrays, (index, index, kind))]


def gpu(arrays: list[np.ndarray]) -> list[TensorData]:
    return [memory.from_numpy(x) for x in arrays]


def host(arrays: list[np.ndarray]) -> list[TensorData]:
    return [cpu(x) for x in arrays]


def check_product(
    multiply: Callable[..., TensorData], matrix: Matrix, n: int, kind: str, index: str
) -> None:
    b = np.random.default_rng(n).normal(size=(matrix.shape[1], n)).astype(kind)
    if kind[0] == "i":
        b = np.random.default_rng(n).integers(-9, 9, b.shape).astype(kind)
        matrix = (matrix * 3).astype(kind)
    out = multiply(*gpu(parts(matrix, kind, index)), memory.from_numpy(b))
    expected = matrix.astype("f8") @ b.astype("f8")
    size = abs(matrix.astype("f8")) @ abs(b.astype("f8")) + 1e-30
    tolerance = {"f4": 1e-6, "f8": 1e-15}.get(kind, 0)
    error = abs(memory.to_numpy(out) - expected)
    assert out.shape == expected.shape
    assert (error <= tolerance * 4 * size).all()


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", COLUMNS)
def test_product(name: str, n: int) -> None:
    check_product(sparse.csr_matmul, MATRICES[name], n, "f4", "i8")


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "i4"])
@pytest.mark.parametrize("index", ["i8", "i4"])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_product_of_all_types(kind: str, index: str, n: int) -> None:
    for name in ("small", "block + 1", "long row"):
        check_product(sparse.csr_matmul, MATRICES[name], n, kind, index)


@pytest.mark.parametrize("lanes", sparse.WIDTHS)
def test_product_by_all_widths(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "LANES", lanes)
    check_product(sparse.csr_matmul, MATRICES["block"], 36, "f4", "i4")


@pytest.mark.parametrize("step", sparse_ladder.LADDER)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", [1, 33])
def test_ladder(step: str, name: str, n: int) -> None:
    check_product(sparse_ladder.LADDER[step], MATRICES[name], n, "f4", "i8")


@pytest.mark.parametrize("step", sparse_ladder.LADDER)
def test_ladder_in_float64(step: str) -> None:
    for name in ("small", "long row"):
        check_product(sparse_ladder.LADDER[step], MATRICES[name], 3, "f8", "i4")


def test_columns_of_strided_matrices() -> None:
    matrix = MATRICES["block"]
    k = matrix.shape[1]
    x = np.random.default_rng(0).normal(size=(k + 1, 24)).astype("f4")
    whole = memory.from_numpy(x)
    views: list[tuple[TensorData, np.ndarray]] = [
        (whole.slice(0, 1, k).slice(1, 4, 12), x[1:, 4:16]),  # in quads, with a step
        (whole.slice(0, 0, k).slice(1, 1, 8), x[:-1, 1:9]),  # at odd addresses
        (whole.slice(0, 0, k).slice(1, 0, 8, 2), x[:-1, 0:16:2]),
        (memory.from_numpy(x.T.copy()).permute((1, 0)).slice(0, 0, k), x[:-1]),
        (whole.slice(0, 0, 1).expand((1, 24)).slice(1, 0, 4), x[:1, :4]),
    ]
    for view, expected in views[:4]:
        out = sparse.csr_matmul(*gpu(parts(matrix, "f4", "i8")), view)
        np.testing.assert_allclose(
            memory.to_numpy(out), matrix @ expected, rtol=1e-4, atol=1e-5
        )


def test_the_same_bits_again_and_again() -> None:
    arrays = gpu(parts(MATRICES["long row"], "f4", "i8"))
    b = memory.from_numpy(np.random.default_rng(0).normal(size=(arrays[1].size, 8)))
    b = memory.copy(b, arrays[2].dtype)
    b = TensorData(b.storage, (MATRICES["long row"].shape[1], 8))
    first = memory.to_numpy(sparse.csr_matmul(*arrays, b))
    for _ in range(3):
        again = memory.to_numpy(sparse.csr_matmul(*arrays, b))
        np.testing.assert_array_equal(first, again)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    """Nothing is multiplied by 0 to be left out."""
    matrix = MATRICES["block"].copy()
    b = np.ones((matrix.shape[1], 8), "f4")
    b[3] = np.inf
    b[5] = np.nan
    out = sparse.csr_matmul(*gpu(parts(matrix, "f4", "i8")), memory.from_numpy(b))
    expected = cpu_numpy(on_cpu.csr_matmul(*host(parts(matrix, "f4", "i8")), cpu(b)))
    np.testing.assert_allclose(memory.to_numpy(out), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", [0, 1, 4, 36])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_sample(name: str, n: int, kind: str) -> None:
    matrix = MATRICES[name]
    rng = np.random.default_rng(n)
    a = rng.normal(size=(matrix.shape[0], n)).astype(kind)
    b = rng.normal(size=(matrix.shape[1], n)).astype(kind)
    crow, col, _ = gpu(parts(matrix, kind, "i8"))
    out = sparse.csr_sample(crow, col, *gpu([a, b]))
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    expected = (a.astype("f8")[rows] * b.astype("f8")[matrix.indices]).sum(1)
    np.testing.assert_allclose(
        memory.to_numpy(out), expected, rtol=0, atol=1e-5 if kind == "f4" else 1e-13
    )


def same(ours: Any, theirs: Any) -> None:
    for x, y in zip(ours, theirs):
        assert x.dtype is y.dtype
        np.testing.assert_array_equal(memory.to_numpy(x), cpu_numpy(y))


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("index", ["i8", "i4"])
def test_transpose(name: str, index: str) -> None:
    arrays = parts(MATRICES[name], "f4", index)[:2]
    cols = MATRICES[name].shape[1]
    same(
        sparse.csr_transpose(*gpu(arrays), cols),
        on_cpu.csr_transpose(*host(arrays), cols),
    )


@pytest.mark.parametrize("kind", pick(["f4", "bool"], ["f4", "f8", "i8", "bool"]))
@pytest.mark.parametrize(
    "name",
    pick(["block + 1", "empty", "no rows"], [k for k in MATRICES if k != "twice"]),
)
def test_pattern_and_gather(name: str, kind: str) -> None:
    dense = (MATRICES[name].toarray() * 2).astype(kind)
    if kind[0] == "f" and dense.size:
        dense[0, 0], dense[-1, -1] = np.nan, -0.0
    pairs = [(memory.from_numpy(dense), cpu(dense))]
    if kind == "f4":
        pairs += [(a.permute((1, 0)), b.permute((1, 0))) for a, b in pairs]
    for a, b in pairs:
        ours, theirs = sparse.csr_pattern(a), on_cpu.csr_pattern(b)
        same(ours, theirs)
        same([sparse.csr_gather(*ours, a)], [on_cpu.csr_gather(*theirs, b)])


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("kind", ["f4", "f8", "i4"])
def test_to_dense(name: str, kind: str) -> None:
    arrays, cols = parts(MATRICES[name], kind, "i8"), MATRICES[name].shape[1]
    same(
        [sparse.csr_to_dense(*gpu(arrays), cols)],
        [on_cpu.csr_to_dense(*host(arrays), cols)],
    )


@pytest.mark.skipif(not SIMULATED, reason="the simulator counts")
@pytest.mark.parametrize(
    "step, columns, sectors",
    [("row_a_thread", 64, 24.3 / 2), ("row_a_warp", 64, 24.3 / 2),
     ("row_a_thread", 1, 2.9), ("row_a_warp", 1, 1.3)],
)  # fmt: skip
def test_sectors_that_the_ladder_asks_for(
    step: str, columns: int, sectors: float
) -> None:
    """For each element of rows of 82, as the handout of a7 says."""
    rng, rows, size = np.random.default_rng(0), 32, 8192
    col = np.sort(np.argsort(rng.random((rows, size)), 1)[:, :82]).astype(np.int32)
    crow = np.arange(0, col.size + 1, 82, dtype=np.int32)
    values, dense = np.ones(col.size, np.float32), np.ones((size, columns), np.float32)
    given = map(memory.from_numpy, (crow, col.ravel(), values, dense))
    with watching() as watch:
        sparse_ladder.LADDER[step](*given)
    assert watch.total.sectors / col.size == pytest.approx(sectors, rel=0.04)
