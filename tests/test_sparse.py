"""Sparse matrices against SciPy, torch and dense arithmetic, on every device."""

from __future__ import annotations

import gc
import importlib.util
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import layouts, sample

import minitorch
from helpers import FLOATS, array_of, loaded, make, numbers
from minitorch import Tensor, dtypes, nn
from minitorch.backend import get_backend
from minitorch.dtypes import DType
from minitorch.functions import sparse as functions
from minitorch.grad_check import gradcheck, gradgradcheck
from minitorch.sparse import SparseCSR, sampled_addmm, sparse_csr_tensor

ROOT = Path(minitorch.__file__).parent.parent
CPU = ("cpu", "simple")


class Case:
    """A sparse matrix as NumPy arrays; columns in any order, places may repeat."""

    def __init__(
        self, crow: Any, col: Any, values: np.ndarray, shape: tuple[int, int]
    ) -> None:
        self.crow, self.col = np.asarray(crow), np.asarray(col, np.int64)
        self.values, self.shape = values, shape

    def on(self, device: str, **kwargs: Any) -> SparseCSR:
        return sparse_csr_tensor(
            self.crow, self.col, self.values, self.shape, device=device, **kwargs
        )

    @property
    def rows(self) -> np.ndarray:
        return np.repeat(np.arange(self.shape[0]), np.diff(self.crow))

    def dense(self) -> np.ndarray:
        out = np.zeros(self.shape, self.values.dtype)
        np.add.at(out, (self.rows, self.col), self.values)
        return out


def case_of(mask: np.ndarray, dtype: DType = dtypes.float64, seed: int = 0) -> Case:
    """A case with random numbers where `mask` is true."""
    crow = np.concatenate([[0], np.cumsum(mask.sum(1))])
    values = numbers((int(mask.sum()),), dtype, seed)
    return Case(crow, np.nonzero(mask)[1].copy(), values, mask.shape)


def random_case(shape: tuple[int, int], density: float, dtype: DType) -> Case:
    rng = np.random.default_rng(shape)
    return case_of(rng.random(shape) < density, dtype)


@st.composite
def cases(draw: Any, dtype: DType = dtypes.float64, repeated: bool = True) -> Case:
    """Any matrix with up to 7 rows and columns: empty rows, none at all, repeats."""
    rows, cols = draw(st.integers(0, 7)), draw(st.integers(0, 7))
    column = st.integers(0, cols - 1) if cols else st.nothing()
    row = st.lists(column, max_size=9, unique=not repeated) if cols else st.just([])
    lists = draw(st.lists(row, min_size=rows, max_size=rows))
    col = [k for columns in lists for k in columns]
    crow = np.concatenate([[0], np.cumsum([len(columns) for columns in lists])])
    values = numbers((len(col),), dtype, draw(st.integers(0, 99)))
    return Case(crow.astype(np.int64), col, values, (rows, cols))


def close(a: Tensor, expected: Any, tolerance: float = 1e-12) -> None:
    found = array_of(a.detach().raw)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def arrow(size: int) -> Case:
    """A full first row, a full first column and a diagonal."""
    mask = np.eye(size, dtype=bool)
    mask[0] = mask[:, 0] = True
    return case_of(mask)


EDGES = {
    "no elements": case_of(np.zeros((4, 3), bool)),
    "one element": case_of(np.ones((1, 1), bool)),
    "0 x 3": case_of(np.zeros((0, 3), bool)),
    "3 x 0": case_of(np.zeros((3, 0), bool)),
    "0 x 0": case_of(np.zeros((0, 0), bool)),
    "full": case_of(np.ones((5, 4), bool)),
    "last row only": case_of(np.arange(12).reshape(4, 3) >= 9),
    "one long row": case_of(np.arange(3000).reshape(2, 1500) >= 1500),
    "one long column": case_of(np.arange(1500).reshape(1500, 1) > 3),
    "arrow": arrow(200),
}


# --------------------------------------------------------------------------- products


@given(data=st.data())
@pytest.mark.parametrize("kind", CPU)
def test_product_with_any_dense_matrix(data, kind):
    case = data.draw(cases())
    n = data.draw(st.sampled_from((0, 1, 2, 5, 17)))
    a = case.on(kind)
    b = sample(kind, (case.shape[1], n), dtypes.float64, data.draw(layouts))
    close(a @ b.tensor, case.dense() @ b.array)
    c = sample(kind, (n, case.shape[0]), dtypes.float64, data.draw(layouts))
    close(c.tensor @ a, c.array @ case.dense())


@given(data=st.data())
@pytest.mark.parametrize("kind", CPU)
def test_product_with_any_vector(data, kind):
    case = data.draw(cases())
    a = case.on(kind)
    x = sample(kind, (case.shape[1],), dtypes.float64, data.draw(layouts))
    close(a @ x.tensor, case.dense() @ x.array)
    y = sample(kind, (case.shape[0],), dtypes.float64, data.draw(layouts))
    close(y.tensor @ a, y.array @ case.dense())


@pytest.mark.parametrize("name", EDGES)
def test_products_at_the_edges(device, name):
    case = EDGES[name]
    a, dense = case.on(device), case.dense()
    b = numbers((case.shape[1], 3), dtypes.float64)
    close(a @ minitorch.tensor(b, device=device), dense @ b)
    close(a @ minitorch.tensor(b[:, 0], device=device), dense @ b[:, 0])
    close(a.T @ minitorch.tensor(dense, device=device), dense.T @ dense, 1e-9)
    close(a.to_dense(), dense)


@pytest.mark.parametrize("n", (1, 2, 15, 16, 127, 128, 129, 250, 257, 400))
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_widths_around_the_blocks_of_the_kernels(n, dtype):
    case = random_case((300, 200), 0.1, dtype)
    b = numbers((200, n), dtype)
    tolerance = 1e-4 if dtype is dtypes.float32 else 1e-11
    close(case.on("cpu") @ minitorch.tensor(b), case.dense() @ b, tolerance)
    g = numbers((300, n), dtype)
    a = case.on("cpu")
    found = functions.CSRSample.apply(
        minitorch.tensor(g), minitorch.tensor(b), a.pattern
    )
    close(found, (g @ b.T)[case.rows, case.col], tolerance)


@pytest.mark.parametrize("density", (0.0, 0.01, 0.1, 0.6))
def test_products_against_scipy(density):
    scipy = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    case = random_case((310, 170), density, dtypes.float32)
    theirs = scipy.csr_matrix((case.values, case.col, case.crow), shape=case.shape)
    ours = case.on("cpu")
    b = numbers((170, 33))
    close(ours @ minitorch.tensor(b), theirs @ b, 1e-4)
    close(ours @ minitorch.tensor(b[:, 0]), theirs @ b[:, 0], 1e-4)
    other = theirs.T.tocsr()
    other.sort_indices()
    found = ours.T
    np.testing.assert_array_equal(found.crow_indices().numpy(), other.indptr)
    np.testing.assert_array_equal(found.col_indices().numpy(), other.indices)
    np.testing.assert_array_equal(found.values().numpy(), other.data)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("shape", ((1, 1), (7, 5), (64, 200), (200, 64)))
def test_products_against_torch(device, shape):
    case = random_case(shape, 0.2, dtypes.float64)
    theirs = torch.sparse_csr_tensor(
        torch.tensor(case.crow),
        torch.tensor(case.col),
        torch.tensor(case.values),
        shape,
        check_invariants=case.col.size > 0,  # torch 2.11 refuses an empty one
    )
    b = numbers((shape[1], 6), dtypes.float64)
    mine = minitorch.tensor(b, device=device)
    expected = torch.sparse.mm(theirs, torch.from_numpy(b)).numpy()
    ours = case.on(device)
    close(minitorch.sparse.mm(ours, mine), expected)
    close(minitorch.mm(ours, mine), expected)
    close(minitorch.matmul(ours, mine), expected)
    close(ours.mm(mine), expected)
    close(mine.T @ ours.T, expected.T)
    dense = theirs.to_dense().to_sparse_csr()
    for a in (ours, minitorch.tensor(case.dense(), device=device).to_sparse_csr()):
        np.testing.assert_array_equal(
            a.crow_indices().tolist(), dense.crow_indices().numpy()
        )
        np.testing.assert_array_equal(
            a.col_indices().tolist(), dense.col_indices().numpy()
        )
        np.testing.assert_array_equal(a.values().tolist(), dense.values().numpy())


@pytest.mark.parametrize("dtype", (dtypes.int64, dtypes.int32), ids=lambda d: d.name)
def test_integers(device, dtype):
    case = random_case((9, 8), 0.4, dtype)
    b = numbers((8, 3), dtype)
    found = case.on(device) @ minitorch.tensor(b, device=device)
    assert found.dtype is dtype
    np.testing.assert_array_equal(found.tolist(), case.dense() @ b)


def test_int32_indices(device):
    case = random_case((20, 30), 0.3, dtypes.float64)
    crow, col = case.crow.astype(np.int32), case.col.astype(np.int32)
    a = sparse_csr_tensor(
        minitorch.tensor(crow), minitorch.tensor(col), case.values, case.shape
    ).to(device)
    assert a.col_indices().dtype is dtypes.int32
    b = numbers((30, 4), dtypes.float64)
    close(a @ minitorch.tensor(b, device=device), case.dense() @ b)
    close(a.T.to_dense(), case.dense().T)
    assert a.T.col_indices().dtype is dtypes.int32


def test_bool_matrices_convert_but_do_not_multiply(device):
    mask = minitorch.tensor([[True, False], [True, True]], device=device)
    a = mask.to_sparse_csr()
    assert a.to_dense().tolist() == mask.tolist()
    with pytest.raises(TypeError, match="bool"):
        a @ mask


def test_the_threads_do_not_change_a_bit():
    numba = pytest.importorskip("numba", reason="Numba is not installed")
    loaded("cpu")
    rng = np.random.default_rng(0)
    mask = rng.random((700, 500)) < np.geomspace(0.001, 0.9, 700)[:, None]
    case = case_of(mask, dtypes.float32)
    b, x = minitorch.tensor(numbers((500, 150))), minitorch.tensor(numbers((500,)))
    before, results = numba.get_num_threads(), []
    try:
        for threads in {1, before}:
            numba.set_num_threads(threads)
            a = case.on("cpu", requires_grad=True)
            right = b.clone().requires_grad_()
            out = a @ right
            out.backward(minitorch.tensor(numbers((700, 150), seed=1)))
            vector = a @ x
            results.append([out, vector, a.values().grad, right.grad, a.to_dense()])
    finally:
        numba.set_num_threads(before)
    for one, other in zip(results[0], results[-1]):
        np.testing.assert_array_equal(array_of(one.raw), array_of(other.raw))


# ------------------------------------------------------- backend functions, one by one


@given(case=cases(), layout=layouts)
@pytest.mark.parametrize("kind", CPU)
def test_backend_functions_with_any_layout(case, layout, kind):
    """Lists that are no longer contiguous, and dense operands of any strides."""
    backend = get_backend(kind)
    same = case.shape[0] == 0 or layout == "expanded"
    list_layout = "stepped" if same else layout
    crow, col = make(case.crow, kind, list_layout), make(case.col, kind, list_layout)
    values = make(case.values, kind, list_layout)
    cols = case.shape[1]
    np.testing.assert_allclose(
        array_of(backend.csr_to_dense(crow, col, values, cols)), case.dense()
    )
    wide = numbers(case.shape, dtypes.float64, layout=layout)
    np.testing.assert_array_equal(
        array_of(backend.csr_gather(crow, col, make(wide, kind, layout))),
        wide[case.rows, case.col],
    )
    crow_t, col_t, order = map(array_of, backend.csr_transpose(crow, col, cols))
    turned = Case(crow_t, col_t, case.values[order], case.shape[::-1])
    np.testing.assert_allclose(turned.dense(), case.dense().T)
    expected = np.argsort(case.col, kind="stable")
    np.testing.assert_array_equal(order, expected)


@given(data=st.data())
@pytest.mark.parametrize("kind", CPU)
def test_sample(data, kind):
    case = data.draw(cases())
    n = data.draw(st.sampled_from((0, 1, 3, 18)))
    a = sample(kind, (case.shape[0], n), dtypes.float64, data.draw(layouts))
    b = sample(kind, (case.shape[1], n), dtypes.float64, data.draw(layouts))
    found = functions.CSRSample.apply(a.tensor, b.tensor, case.on(kind).pattern)
    close(found, (a.array @ b.array.T)[case.rows, case.col])


@given(data=st.data())
@pytest.mark.parametrize("kind", CPU)
def test_pattern_of_any_dense_matrix(data, kind):
    shape = data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))
    array = numbers(shape, dtypes.int64, data.draw(st.integers(0, 99))) // 5
    array = array.astype(np.float64)
    if array.size:
        array.reshape(-1)[0] = np.nan  # is not zero
    layout = data.draw(layouts.filter(lambda name: name != "expanded"))
    a = Tensor(make(array, kind, layout)).to_sparse_csr()
    assert a.nnz == np.count_nonzero(array)
    np.testing.assert_array_equal(array_of(a.to_dense().raw), array)
    assert a.shape == shape


# -------------------------------------------------------------------- the transposed


@given(case=cases())
@pytest.mark.parametrize("kind", CPU)
def test_transposed(case, kind):
    a = case.on(kind)
    close(a.t().to_dense(), case.dense().T)
    assert a.T.shape == case.shape[::-1]
    close(a.T.T.values(), case.values)
    assert a.T.T.pattern is a.pattern
    assert a.transpose(0, 1).pattern is a.T.pattern is a.pattern.transposed().pattern
    assert a.transpose(1, -1) is a


def test_the_transposed_outlives_the_matrix_and_makes_no_cycle(device, few_objects):
    case = random_case((6, 9), 0.5, dtypes.float64)
    gc.disable()
    try:
        a = case.on(device)
        turned, gone = a.T, weakref.ref(a.pattern)
        del a
        assert gone() is None
    finally:
        gc.enable()
    close(turned.to_dense(), case.dense().T)
    close(turned.T.to_dense(), case.dense())
    close(turned.T.T.to_dense(), case.dense().T)


# -------------------------------------------------------------------------- gradients


def leaf(shape: tuple[int, ...], device: str, seed: int = 0) -> Tensor:
    array = numbers(shape, dtypes.float64, seed)
    return minitorch.tensor(array, device=device, requires_grad=True)


GRADIENT_CASES = {
    "random": random_case((4, 5), 0.4, dtypes.float64),
    "repeated, not sorted": Case(
        [0, 3, 3, 5], [2, 0, 2, 1, 0], numbers((5,), dtypes.float64), (3, 4)
    ),
    "no elements": EDGES["no elements"],
}


@pytest.mark.parametrize("name", GRADIENT_CASES)
@pytest.mark.parametrize("what", ("matrix", "vector", "left", "left vector", "T"))
def test_gradients_of_products(device, name, what):
    case = GRADIENT_CASES[name]
    pattern = case.on(device).pattern
    rows, cols = case.shape
    values = minitorch.tensor(case.values, device=device, requires_grad=True)
    fn, shape = {
        "matrix": (lambda v, b: SparseCSR(pattern, v) @ b, (cols, 3)),
        "vector": (lambda v, b: SparseCSR(pattern, v) @ b, (cols,)),
        "left": (lambda v, b: b @ SparseCSR(pattern, v), (2, rows)),
        "left vector": (lambda v, b: b @ SparseCSR(pattern, v), (rows,)),
        "T": (lambda v, b: SparseCSR(pattern, v).T @ b, (rows, 2)),
    }[what]
    inputs = [values, leaf(shape, device)]
    assert gradcheck(fn, inputs)
    assert gradgradcheck(fn, inputs)


@pytest.mark.parametrize("name", GRADIENT_CASES)
def test_gradients_of_the_other_operations(device, name):
    case = GRADIENT_CASES[name]
    pattern = case.on(device).pattern
    rows, cols = case.shape
    values = minitorch.tensor(case.values, device=device, requires_grad=True)
    for fn in (
        lambda v: SparseCSR(pattern, v).to_dense(),
        lambda v: (SparseCSR(pattern, v) * 3.0).T.values(),
        lambda v: (-SparseCSR(pattern, v) / 2).values(),
    ):
        assert gradcheck(fn, [values]) and gradgradcheck(fn, [values])

    def scaled(v: Tensor, s: Tensor) -> Tensor:
        return (SparseCSR(pattern, v) * s).to_dense()

    def sampled(v: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return sampled_addmm(SparseCSR(pattern, v), a, b, beta=0.5, alpha=2.0).values()

    inputs = [values, leaf((rows, 2), device), leaf((2, cols), device)]
    assert gradcheck(scaled, [values, leaf((), device)])
    assert gradcheck(sampled, inputs) and gradgradcheck(sampled, inputs)


def test_gradients_against_dense_torch(device):
    case = random_case((40, 30), 0.15, dtypes.float64)
    b = numbers((30, 20), dtypes.float64)
    weight = torch.from_numpy(case.dense()).requires_grad_()
    right = torch.from_numpy(b).requires_grad_()
    (torch.tanh(weight @ right) ** 2).sum().backward()
    a = case.on(device, requires_grad=True)
    mine = minitorch.tensor(b, device=device, requires_grad=True)
    ((a @ mine).tanh() ** 2).sum().backward()
    close(mine.grad, right.grad.numpy())
    close(a.values().grad, weight.grad.numpy()[case.rows, case.col])
    assert a.grad is not None and a.grad.pattern is a.pattern
    close(a.grad.values(), a.values().grad.tolist())


def test_gradient_through_to_sparse_csr(device):
    dense = minitorch.tensor(
        [[0.0, 2.0], [3.0, 0.0]], device=device, requires_grad=True
    )
    (dense.to_sparse_csr() @ minitorch.tensor([[1.0], [5.0]], device=device)).backward(
        minitorch.tensor([[10.0], [1.0]], device=device)
    )
    assert dense.grad.tolist() == [[0.0, 50.0], [1.0, 0.0]]


def test_only_the_wanted_gradients_are_computed(device):
    case = random_case((5, 4), 0.5, dtypes.float64)
    b = leaf((4, 3), device)
    (case.on(device) @ b).sum().backward()
    close(b.grad, np.repeat(case.dense().sum(0)[:, None], 3, 1))
    a = case.on(device, requires_grad=True)
    (a @ b.detach()).sum().backward()
    assert a.grad is not None
    with minitorch.no_grad():
        assert not (a @ b).requires_grad
    assert not (a.detach() @ b.detach()).requires_grad


# ------------------------------------------------------------------- what a matrix is


def test_properties(device):
    values = minitorch.tensor([5.0, 7.0, 8.0], device=device)
    a = sparse_csr_tensor([0, 1, 1, 3], [1, 0, 2], values, (3, 4))
    assert a.shape == a.size() == (3, 4) and a.size(-1) == 4 and len(a) == 3
    assert a.nnz == a._nnz() == 3 and a.numel() == 12 and a.ndim == a.dim() == 2
    assert a.dtype is dtypes.float32 and a.device == device and a.is_sparse_csr
    assert a.layout is minitorch.sparse_csr
    assert a.values() is values
    assert a.crow_indices().tolist() == [0, 1, 1, 3]
    assert a.col_indices().tolist() == [1, 0, 2]
    assert a.to_sparse_csr() is a
    assert not a.requires_grad and a.requires_grad_().requires_grad
    assert values.requires_grad and not a.detach().requires_grad
    double = a.double()
    assert double.dtype is dtypes.float64 and double.pattern is a.pattern
    assert a.clone().values().tolist() == [5.0, 7.0, 8.0]
    assert (2 * a).values().tolist() == [10.0, 14.0, 16.0]
    assert a.float().values() is values


def test_the_size_is_inferred():
    assert sparse_csr_tensor([0, 1, 1, 3], [1, 0, 4], [1.0, 2.0, 3.0]).shape == (3, 5)
    assert sparse_csr_tensor([0, 0], [], []).shape == (1, 0)


def test_to_another_device_and_back(device):
    case = random_case((5, 6), 0.5, dtypes.float64)
    a = case.on("cpu", requires_grad=True)
    moved = a.to(device, minitorch.float32)
    assert moved.device == moved.crow_indices().device == device
    assert moved.dtype is dtypes.float32
    moved.to_dense().sum().backward()
    assert a.grad.values().tolist() == [1.0] * a.nnz
    back = moved.cpu()
    assert back.device == back.col_indices().device == "cpu"
    close(back.to_dense(), case.dense().astype(np.float32), 1e-6)


def test_indices_are_copied_and_guarded(device):
    crow = minitorch.tensor([0, 1, 2], device=device)
    a = sparse_csr_tensor(crow, [0, 1], [1.0, 2.0], (2, 2), device=device)
    crow.fill_(100)
    assert a.to_dense().tolist() == [[1.0, 0.0], [0.0, 2.0]]
    a.col_indices()[1] = 100
    with pytest.raises(RuntimeError, match="changed in place"):
        a.to_dense()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("nnz", (0, 3, 60, 2000))
@pytest.mark.parametrize("dtype", ("float32", "float64", "int64"))
def test_repr_is_torchs(nnz, dtype):
    crow = np.array([0, nnz // 3, nnz])
    col = np.arange(nnz)
    values = (np.arange(nnz) * 3 - 50).astype(dtype)
    ours = sparse_csr_tensor(crow, col, values, (2, 3000))
    theirs = torch.sparse_csr_tensor(
        torch.from_numpy(crow),
        torch.from_numpy(col),
        torch.from_numpy(values),
        (2, 3000),
        check_invariants=True,
    )
    expected = repr(theirs).replace("torch.", "minitorch.")
    # The longer name of the library breaks the last lines elsewhere.
    assert repr(ours).split() == expected.split()
    lists = [re.split(r",\s+size=\(2", text)[0] for text in (repr(ours), expected)]
    assert lists[0] == lists[1]


def test_repr_says_what_is_not_the_default():
    a = sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), device="simple")
    assert "device='simple'" in repr(a)
    assert "requires_grad=True" in repr(a.requires_grad_())
    assert "grad_fn=<MulBackward>" in repr(a * 2.0)


# ----------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "crow, col, values, size, message",
    (
        ([0, 2], [0, 1], [1.0, 2.0], (2, 2), "has 2 numbers for 2 rows"),
        ([1, 1, 2], [0, 1], [1.0, 2.0], (2, 2), "from 1 to 2; it must go from 0"),
        ([0, 1, 1], [0, 1], [1.0, 2.0], (2, 2), "from 0 to 1; it must go from 0"),
        ([0, 2, 1, 2], [0, 1], [1.0, 2.0], (3, 2), "falls from 2 to 1 at row 1"),
        ([0, 1, 2], [0, 2], [1.0, 2.0], (2, 2), r"col_indices\[1\] is 2.*0 to 1"),
        ([0, 1, 2], [-1, 1], [1.0, 2.0], (2, 2), r"col_indices\[0\] is -1"),
        ([0, 1, 2], [0, 1], [1.0], (2, 2), r"values is \(1,\)"),
        ([0, 1, 2], [0, 1], [[1.0, 2.0]], (2, 2), r"values is \(1, 2\)"),
        ([[0, 1]], [0], [1.0], (1, 1), "crow_indices is .1, 2.; expected one dim"),
        ([], [], [], (0, 0), "has 0 numbers for 0 rows; expected one more"),
        ([0, 1], [0], [1.0], (1, -1), "none may be negative"),
        ([0, 1], [0], [1.0], (1, 1, 1), "two ints"),
        ([0, 1], [0], [1.0], 3, "two ints"),
    ),
)
def test_lists_that_are_no_matrix(crow, col, values, size, message):
    with pytest.raises(ValueError, match=message):
        sparse_csr_tensor(crow, col, values, size)


def test_indices_must_be_integers_of_one_kind():
    with pytest.raises(TypeError, match="col_indices is float32"):
        sparse_csr_tensor([0, 1], [0.0], [1.0], (1, 1))
    with pytest.raises(TypeError, match="int32"):
        crow = minitorch.tensor([0, 1], dtype=minitorch.int32)
        sparse_csr_tensor(crow, [0], [1.0], (1, 1))


def test_operands_that_do_not_fit(device):
    a = sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 3), device=device)
    ones = minitorch.ones(2, 2, device=device)
    with pytest.raises(ValueError, match=r"A has 3 columns.*\(2, 2\)"):
        a @ ones
    with pytest.raises(ValueError, match=r"A has 2 rows.*\(3, 3\)"):
        minitorch.ones(3, 3, device=device) @ a
    with pytest.raises(ValueError, match=r"\(2, 3, 4\)"):
        a @ minitorch.ones(2, 3, 4, device=device)
    with pytest.raises(TypeError, match="float64"):
        a @ minitorch.ones(3, device=device, dtype=minitorch.float64)
    with pytest.raises(TypeError, match="to_dense"):
        a @ a
    with pytest.raises(TypeError, match="ndarray"):
        a @ np.ones((3, 2))
    with pytest.raises(TypeError, match="scaled by a number"):
        a * minitorch.ones(2, 3, device=device)
    with pytest.raises(IndexError, match="0 and 1"):
        a.transpose(0, 2)
    with pytest.raises(ValueError, match="two dimensions"):
        minitorch.ones(3, device=device).to_sparse_csr()
    with pytest.raises(ValueError, match="neither"):
        bool(a)
    with pytest.raises(ValueError, match=r"values is \(3,\)"):
        SparseCSR(a.pattern, minitorch.ones(3, device=device))
    with pytest.raises(TypeError, match="one must be a SparseCSR"):
        minitorch.sparse.mm(ones, ones)
    with pytest.raises(ValueError, match="two matrices"):
        minitorch.sparse.mm(a, minitorch.ones(3, device=device))
    with pytest.raises(ValueError, match=r"\(M, N\)"):
        sampled_addmm(a, ones, ones)


def test_operands_on_two_devices():
    a = sparse_csr_tensor([0, 1], [0], [1.0], (1, 1))
    with pytest.raises(RuntimeError, match="'simple'"):
        a @ minitorch.ones(1, device="simple")


# --------------------------------------------------------------------- pruned networks


def test_pruning_keeps_the_largest(device):
    weight = minitorch.tensor(numbers((20, 30)), device=device)
    found = nn.prune_weight(weight, 0.9)
    assert found.nnz == 60 and found.device == device
    dense = np.array(found.to_dense().tolist(), np.float32)
    kept = dense != 0
    original = numbers((20, 30))
    np.testing.assert_array_equal(dense[kept], original[kept])
    assert np.abs(original[kept]).min() >= np.abs(original[~kept]).max()
    assert nn.prune_weight(found, 0.95).nnz == 30
    assert nn.prune_weight(found, 0.5).nnz == 60  # zeros do not come back
    assert nn.prune_weight(weight, 1.0).nnz == 0
    assert nn.prune_weight(weight, 0.0).nnz == 600
    with pytest.raises(ValueError, match="from 0 to 1"):
        nn.prune_weight(weight, 90)


@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("lead", ((), (4,), (0,), (2, 3)))
def test_sparse_linear_is_a_linear(device, bias, lead):
    dense = nn.Linear(6, 5, bias=bias).to(device)
    sparse = nn.SparseLinear(dense.weight.to_sparse_csr(), dense.bias)
    array = numbers((*lead, 6))
    x = minitorch.tensor(array, device=device, requires_grad=True)
    y = minitorch.tensor(array, device=device, requires_grad=True)
    expected, found = dense(x), sparse(y)
    assert found.shape == expected.shape
    close(found, array_of(expected.detach().raw), 1e-5)
    (expected * expected).sum().backward()
    (found * found).sum().backward()
    close(y.grad, array_of(x.grad.raw), 1e-5)
    flat = array_of(dense.weight.grad.raw).reshape(-1)
    close(sparse.values.grad, flat, 1e-5)
    if bias:
        close(sparse.bias.grad, array_of(dense.bias.grad.raw), 1e-5)


def test_sparse_linear_loads_another_pattern(device):
    one, two = (
        nn.SparseLinear(nn.prune_weight(minitorch.tensor(numbers((8, 9), seed=s)), 0.8))
        for s in (1, 2)
    )
    one, two = one.to(device), two.to(device)
    x = minitorch.tensor(numbers((3, 9)), device=device)
    before = one(x)
    one.load_state_dict(two.state_dict())
    close(one(x), array_of(two(x).detach().raw))
    assert np.abs(array_of((one(x) - before).detach().raw)).max() > 0
    assert one.weight.pattern is one.weight.pattern  # checked once


def test_sparse_linear_says_what_does_not_fit():
    weight = minitorch.ones(2, 3).to_sparse_csr()
    with pytest.raises(TypeError, match="to_sparse_csr"):
        nn.SparseLinear(minitorch.ones(2, 3))
    with pytest.raises(ValueError, match="bias"):
        nn.SparseLinear(weight, minitorch.ones(3))
    with pytest.raises(ValueError, match=r"in_features \(3\)"):
        nn.SparseLinear(weight)(minitorch.ones(4, 2))
    layer = nn.SparseLinear(weight, minitorch.ones(2))
    assert (
        repr(layer) == "SparseLinear(in_features=3, out_features=2, nnz=6, bias=True)"
    )


def test_prune_linears_replaces_every_linear():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(10, 10), nn.Linear(10, 10)])
            self.again = self.layers[0]
            self.norm = nn.LayerNorm(10)

        def forward(self, x: Tensor) -> Tensor:
            for layer in (*self.layers, self.again):
                x = self.norm(layer(x).relu())
            return x

    net = Net().eval()
    assert nn.prune_linears(net, 0.7) is net
    assert isinstance(net.layers[0], nn.SparseLinear) and not net.again.training
    assert net.again is net.layers[0] and net.again.values.numel() == 30
    nn.prune_linears(net, 0.9)
    assert net.again is net.layers[0] and net.again.values.numel() == 10
    assert net(minitorch.ones(2, 10)).shape == (2, 10)
    assert isinstance(nn.prune_linears(nn.Linear(2, 2), 0.5), nn.SparseLinear)


def test_the_pruned_mlp_of_the_docs_learns(capsys):
    spec = importlib.util.spec_from_file_location(
        "pruned_mlp", ROOT / "docs" / "pruned_mlp.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    right = module.main(count=1000, epochs=4, hidden=128, drawn=True)
    assert right["dense"] > 0.6
    assert right["90% pruned, trained"] > right["dense"] - 0.1
    assert right["90% pruned, trained"] > right["90% pruned"]
    assert "99% pruned" in capsys.readouterr().out
