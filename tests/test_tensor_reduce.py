"""Reductions over one, several and all dims, against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operations import assert_same, weighted_sum
from strategies import small_shapes, tensors

import minitorch

inf, nan = math.inf, math.nan


some_dtypes = st.sampled_from((minitorch.float32, minitorch.int64))


@given(data=st.data(), keepdim=st.booleans())
def test_any_dims(device, data, keepdim):
    x, array = data.draw(tensors(device, small_shapes(1, 4), some_dtypes))
    t = torch.tensor(array)
    dims = data.draw(st.sets(st.integers(0, x.dim() - 1), min_size=1))
    dims = tuple(d - x.dim() * data.draw(st.booleans()) for d in dims)
    assert_same(x.sum(dims, keepdim), t.sum(dims, keepdim), 1e-5)
    assert_same(x.any(dims, keepdim), t.any(dims, keepdim))
    assert_same(x.all(dims, keepdim), t.all(dims, keepdim))
    if all(x.size(d) for d in dims):
        assert_same(x.amax(dims, keepdim), t.amax(dims, keepdim))
        assert_same(x.amin(list(dims), keepdim), t.amin(dims, keepdim))


EXTREMES = ["max", "min", "argmax", "argmin", "amax", "amin", "sum", "prod", "any"]


@pytest.mark.parametrize("name", EXTREMES)
def test_special_values(device, name):
    rows = [[1.0, nan, 3.0], [inf, 1.0, -inf], [-inf, -inf, -inf], [2.0, 2.0, 1.0]]
    x, t = minitorch.tensor(rows, device=device), torch.tensor(rows)
    assert_same(getattr(x, name)(), getattr(t, name)())
    assert_same(getattr(x, name)(1), getattr(t, name)(1))


def test_the_first_of_equal_values_wins(device):
    rows = [[1, 3, 3, 1], [2, 2, 2, 2]]
    for dtype in (minitorch.int64, minitorch.float32):
        x = minitorch.tensor(rows, dtype=dtype, device=device)
        assert x.argmax(1).tolist() == [1, 0] and x.argmin(1).tolist() == [0, 0]
        assert x.max(1).indices.tolist() == [1, 0]
        assert x.argmax().item() == 1


@given(data=st.data(), keepdim=st.booleans())
def test_median(device, data, keepdim):
    """Also with ties and NaNs: the middle one of the sorted numbers, else a NaN."""
    numbers = st.sampled_from([-1.0, 0.0, 0.0, 2.5, nan, inf])
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 5)))
    rows = data.draw(st.lists(numbers, min_size=15, max_size=15))
    array = np.array(rows)[: math.prod(shape)].reshape(shape)
    dim = data.draw(st.integers(-2, 1))
    x = minitorch.tensor(array.T.copy(), device=device).T.requires_grad_()
    t = torch.tensor(array, requires_grad=True)
    found, expected = x.median(dim, keepdim), t.median(dim, keepdim)
    assert_same(found.values, expected.values)
    there = x.gather(dim, found.indices if keepdim else found.indices.unsqueeze(dim))
    assert_same(there if keepdim else there.squeeze(dim), expected.values)
    assert_same(x.median(), t.median())
    (2 * x.median()).backward()
    (2 * t.median()).backward()
    assert_same(x.grad, t.grad, 1e-12)


def test_median_errors(device):
    x = minitorch.ones(2, 0, device=device)
    for wrong in (lambda: x.median(), lambda: x.median(1), lambda: x.median(2)):
        with pytest.raises((ValueError, IndexError), match="median: "):
            wrong()
    with pytest.raises(TypeError, match="median: "):
        x.bool().median()
    assert x.median(0).values.shape == (0,)


def test_ties_share_the_gradient_of_amax(device):
    x = minitorch.tensor([[1.0, 3.0, 3.0]], device=device, requires_grad=True)
    t = torch.tensor([[1.0, 3.0, 3.0]], requires_grad=True)
    (x.amax(1) + x.max() + 2 * x.max(1).values).sum().backward()
    (t.amax(1) + t.max() + 2 * t.max(1).values).sum().backward()
    assert_same(x.grad, t.grad)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_prod_with_zeros(device, zeros):
    values = [0.0] * zeros + [2.0, 3.0, -1.0]
    x = minitorch.tensor(values, device=device, requires_grad=True)
    t = torch.tensor(values, requires_grad=True)
    x.prod().backward()
    t.prod().backward()
    assert_same(x.grad, t.grad)


def test_flat_places_of_std_and_norm(device):
    """The slope of the root is taken as 0 where all elements are equal."""
    for make in (lambda x: x.std(), lambda x: (x - x).norm(), lambda x: x.std(0)):
        x = minitorch.full((3,), 2.0, device=device).requires_grad_()
        t = torch.full((3,), 2.0).requires_grad_()
        make(x).backward()
        make(t).backward()
        assert_same(x.grad, t.grad)


@pytest.mark.filterwarnings("ignore:var")
def test_statistics_of_too_few_values(device):
    x, t = minitorch.ones(1, 3, device=device), torch.ones(1, 3)
    assert_same(x.var(0), t.var(0))
    assert_same(x.std(0, correction=0), t.std(0, correction=0))
    empty, none = minitorch.ones(0, 3, device=device), torch.ones(0, 3)
    assert_same(empty.mean(0), none.mean(0))
    assert_same(empty.sum(), none.sum())
    assert_same(empty.prod(0), none.prod(0))
    assert_same(empty.var(0), none.var(0))


def test_many_elements(device):
    n = 2000 if device == "simple" else 300_001
    array = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    x = minitorch.tensor(array, device=device)
    exact = array.astype(np.float64)
    assert abs(x.sum().item() - exact.sum()) < 1e-6 * np.abs(exact).sum()
    assert abs(x.mean().item() - exact.mean()) < 1e-6
    assert abs(x.var().item() - exact.var(ddof=1)) < 1e-5
    assert x.max().item() == array.max() and x.argmin().item() == array.argmin()
    assert np.allclose(x.cumsum(0).numpy(), exact.cumsum(), atol=1e-6 * n)
    assert minitorch.ones(n, dtype=minitorch.bool, device=device).sum().item() == n


def test_function_forms(device):
    x = minitorch.tensor([[1.0, 4.0], [3.0, 2.0]], device=device)
    t = torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    for name in "sum mean prod amax amin argmax argmin any all logsumexp".split():
        mine, theirs = getattr(minitorch, name)(x, 1), getattr(torch, name)(t, 1)
        assert_same(mine, theirs, 1e-6, name)
    for name in ("max", "min", "sort"):
        mine = getattr(minitorch, name)(x, dim=0)
        assert_same(tuple(mine), tuple(getattr(torch, name)(t, dim=0)))
    for name in ("var", "std"):
        assert_same(getattr(minitorch, name)(x, 0), getattr(torch, name)(t, 0), 1e-6)
    assert_same(minitorch.cumsum(x, 0), torch.cumsum(t, 0))
    assert_same(minitorch.norm(x), torch.norm(t), 1e-6)
    assert_same(tuple(minitorch.topk(x, 1)), tuple(torch.topk(t, 1)))
    assert_same(minitorch.softmax(x, 0), torch.softmax(t, 0), 1e-6)
    assert_same(minitorch.log_softmax(x, 0), torch.log_softmax(t, 0), 1e-6)


@given(
    counted=st.lists(st.integers(0, 9), max_size=20),
    minlength=st.integers(0, 12),
    kind=st.sampled_from([None, "float32", "float64", "int64", "bool", "float16"]),
)
def test_bincount(device, counted, minlength, kind):
    found = []
    for lib in (minitorch, torch):
        where = {"device": device if lib is minitorch else "cpu"}
        x = lib.tensor([*counted, 3], dtype=lib.int32, **where)
        w = lib.arange(2 * len(x), **where)[::2]
        w = None if kind is None else (w % 3).to(getattr(lib, kind))
        found.append(lib.bincount(x[: len(counted) + 1], w, minlength=minlength))
    assert_same(*found, 1e-6)


@pytest.mark.parametrize("kind", ["int64", "float32", "bool"])
def test_unique_elements_where_they_are_and_how_often(device, kind):
    for numbers in ([[3, 1, 0], [1, 3, 1]], [], 2):
        found = []
        for lib, where in ((minitorch, device), (torch, "cpu")):
            x = lib.tensor(numbers, dtype=getattr(lib, kind), device=where)
            both = lib.unique(x, return_inverse=True, return_counts=True)
            parts = [*both, x.unique(), x.unique(return_counts=True)[1]]
            found.append([part.tolist() for part in parts])
        assert found[0] == found[1]
    x = minitorch.tensor([2.0, float("nan"), float("nan")], device=device)
    assert x.unique().numel() == 3


def test_bincount_errors(device):
    def ints(*values):
        return minitorch.tensor(values, dtype=minitorch.int64, device=device)

    w = minitorch.ones(1, device=device, requires_grad=True)
    assert ints().bincount(minlength=2).tolist() == [0, 0]
    assert not ints(1).bincount(w).requires_grad
    for wrong in (
        lambda: ints(-1).bincount(),
        lambda: ints(1).float().bincount(),
        lambda: ints(1).reshape(1, 1).bincount(),
        lambda: ints(1).bincount(minlength=-1),
        lambda: ints(1, 2).bincount(w),
    ):
        with pytest.raises(ValueError, match="bincount: "):
            wrong()


@pytest.mark.parametrize(
    "row", [[2, 0, 3, 4], [0, 5, 0, 1], [0, 0, 2, 3], [-1, 2, 3, 0]]
)
@pytest.mark.parametrize("name", ["cumprod", "prod"])
def test_gradients_of_products_with_zeros(device, row, name):
    """And gradients of these: the second pass starts from the first one's squares."""
    rows = np.array([row, [1, 2, 3, 4]], np.float64)
    for dim in (0, 1):
        found = []
        for lib in (minitorch, torch):
            x = lib.tensor(rows, device=device if lib is minitorch else "cpu")
            x.requires_grad_()
            out = weighted_sum(getattr(x, name)(dim))
            (grad,) = lib.autograd.grad(out, x, create_graph=True)
            (grad * grad).sum().backward()
            found.append((grad.detach(), x.grad))
        assert_same(*found, 1e-12)


FOLDS = "sum mean var std prod amax amin any all argmax argmin max min median logsumexp"
ALONG = (
    "cumsum cumprod sort argsort softmax log_softmax squeeze unsqueeze unbind gather "
    "index_select scatter scatter_add select narrow chunk repeat_interleave topk "
    "index_add_ index_copy_ scatter_ scatter_add_"
)
MORE = {  # what these need besides
    "gather": {"index": [[1, 0]]},
    "index_select": {"index": [1, 0]},
    "select": {"index": 1},
    "narrow": {"start": 1, "length": 1},
    "chunk": {"chunks": 2},
    "repeat_interleave": {"repeats": 2},
    "topk": {"k": 1},
}
for _name in ("scatter", "scatter_add", "scatter_", "scatter_add_"):
    MORE[_name] = {"index": [[1, 0]], "src": [[5.0, 6.0]]}
for _name in ("index_add_", "index_copy_"):
    MORE[_name] = {"index": [1], "source": [[5.0, 6.0]]}


@pytest.mark.parametrize("name", [*FOLDS.split(), *ALONG.split()])
def test_names_of_numpy(name):
    """`axis` and `keepdims` are `dim` and `keepdim`, as in PyTorch."""
    found = []
    for lib in (torch, minitorch, minitorch.Tensor):
        make = torch.tensor if lib is torch else minitorch.tensor
        x = make([[3.0, 1.0], [2.0, 4.0]])
        more = MORE.get(name, {"keepdims": True} if name in FOLDS.split() else {})
        made = {k: make(v) if type(v) is list else v for k, v in more.items()}
        room = torch.Tensor if lib is torch else lib
        if not hasattr(room, name):  # in-place methods
            continue
        out = getattr(room, name)(x, axis=0, **made)
        single = isinstance(out, (torch.Tensor, minitorch.Tensor))
        found.append([out] if single else out)
    expected, *ours = found
    assert ours
    for mine in ours:
        for a, b in zip(mine, expected, strict=True):
            assert_same(a, b, 1e-6)
    with pytest.raises(TypeError, match=f"{name}: got dim, axis; axis means dim"):
        getattr(x, name)(dim=0, axis=1)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), ()])
def test_linalg_norms(shape):
    x, theirs = (lib.linspace(-2, 3, math.prod(shape)) for lib in (minitorch, torch))
    x, theirs = x.reshape(shape), theirs.reshape(shape)
    ways = [{}, {"keepdim": True}, {"dim": -1, "ord": 1}, {"dim": -1, "ord": math.inf}]
    ways += [{"dim": (0, -1)}, {"dim": (0, -1), "ord": "fro"}] * (len(shape) > 1)
    ways += [{"ord": {1: 1, 2: "fro"}[len(shape)]}] if len(shape) in (1, 2) else []
    for way in ways:
        mine, expected = (
            minitorch.linalg.norm(x, **way),
            torch.linalg.norm(theirs, **way),
        )
        assert_same(mine, expected, 1e-6)
        if way.get("ord") != "fro":
            mine = minitorch.linalg.vector_norm(x, **way)
            assert_same(mine, torch.linalg.vector_norm(theirs, **way), 1e-6)


@pytest.mark.parametrize("way", [(2,), (1, (0, 1)), ("fro", 0), (3, 0), ("nuc",)])
def test_norms_of_matrices_are_frobenius_alone(way):
    with pytest.raises(ValueError, match=r"norm: (ord|p) is .* (\d|inf)"):
        minitorch.linalg.norm(minitorch.ones(2, 3), *way)


def test_either_dim_or_axis():
    for name in ("cat", "stack"):
        with pytest.raises(TypeError, match=f"{name}: got dim=1 and axis=0; give one"):
            getattr(minitorch, name)([minitorch.ones(2, 2)] * 2, 1, axis=0)


def test_mean_as_another_dtype():
    x, theirs = (lib.tensor([[1, 2], [4, 8]]) for lib in (minitorch, torch))
    for lib, t in ((minitorch, x), (torch, theirs)):
        assert t.mean(0, dtype=lib.float64).tolist() == [2.5, 5.0]
    assert x.mean(dtype=minitorch.float64).dtype is minitorch.float64
