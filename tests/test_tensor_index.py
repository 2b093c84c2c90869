"""Reading and writing by position, gather and scatter, sort and topk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operations import assert_same, index, mask
from strategies import (
    any_indices,
    basic_indices,
    layouts,
    sample,
    seeds,
    small_shapes,
)

import minitorch
from minitorch import Tensor


def in_library(lib: Any, items: tuple[Any, ...], device: str) -> tuple[Any, ...]:
    """The index with its arrays as tensors of `lib`."""
    where = {"device": device} if lib is minitorch else {}
    return tuple(
        lib.tensor(item, **where) if isinstance(item, np.ndarray) else item
        for item in items
    )


# --------------------------------------------------------------------------- reading


@given(data=st.data(), layout=layouts, seed=seeds)
def test_basic_indices_are_views(device, data, layout, seed):
    shape = data.draw(small_shapes(0, 4))
    items = data.draw(basic_indices(shape))
    x, array = sample(device, shape, minitorch.float32, layout, seed)
    y = x[items]
    assert_same(y, torch.tensor(array)[items], what=f"{items}")
    assert y.raw.storage is x.raw.storage


@given(data=st.data(), layout=layouts, seed=seeds)
def test_any_index(device, data, layout, seed):
    shape = data.draw(small_shapes(1, 4, 4).filter(lambda s: 0 not in s))
    items = data.draw(any_indices(shape))
    x, array = sample(device, shape, minitorch.float32, layout, seed)
    t = torch.tensor(array)
    y = x[in_library(minitorch, items, device)]
    assert_same(y, t[in_library(torch, items, device)], what=f"{shape} {items}")


def test_iteration_and_length(device):
    x = minitorch.arange(6, device=device).reshape(3, 2)
    assert len(x) == 3 and [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    _, _, c = x
    assert c.tolist() == [4, 5]
    for operation in (len, iter, list):
        with pytest.raises(TypeError, match="without dimensions"):
            operation(minitorch.tensor(1.0, device=device))


def test_gradient_of_an_index_taken_twice(device):
    x = minitorch.ones(3, 2, device=device, requires_grad=True)
    x[index(minitorch, x, [0, 0, 2])].sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


# --------------------------------------------------------------------------- writing


@given(data=st.data(), layout=st.sampled_from(["contiguous", "permuted", "stepped"]))
def test_assignment(device, data, layout):
    shape = data.draw(small_shapes(1, 3, 4).filter(lambda s: 0 not in s))
    items = data.draw(st.one_of(basic_indices(shape), any_indices(shape)))
    x, array = sample(device, shape, minitorch.float32, layout)
    t = torch.from_numpy(array.copy())
    target = t[in_library(torch, items, device)].shape
    kind = data.draw(st.sampled_from(["number", "full", "broadcast"]))
    if _has_repeats(t, in_library(torch, items, device)) and kind != "number":
        kind = "number"  # which of several values is kept is not defined
    if kind == "number":
        x[in_library(minitorch, items, device)] = 7.5
        t[in_library(torch, items, device)] = 7.5
    else:
        rows = target if kind == "full" else target[1:]
        value = np.random.default_rng(0).standard_normal(rows).astype(np.float32)
        mine = minitorch.tensor(value, device=device)
        try:
            t[in_library(torch, items, device)] = torch.from_numpy(value)
        except (RuntimeError, IndexError):
            return
        if any(i is None for i in items) and any(
            isinstance(i, np.ndarray) for i in items
        ):
            return
        x[in_library(minitorch, items, device)] = mine
    assert_same(x, t, what=f"{shape} {items}")


def _has_repeats(t: torch.Tensor, items: tuple[Any, ...]) -> bool:
    places = torch.arange(t.numel()).reshape(t.shape)[items].reshape(-1)
    return len(places.unique()) < len(places)


WRITES = [
    (lambda m, x: 1, 5.0),
    (lambda m, x: (0, 2), 5),
    (lambda m, x: (slice(None), 1), [1.0, 2.0, 3.0]),
    (lambda m, x: Ellipsis, [1.0, 2.0, 3.0, 4.0]),
    (lambda m, x: slice(0, 0), 3.0),
    (lambda m, x: x > 0, 0.0),
    (lambda m, x: mask(m, x, [True, False, True]), [[1.0], [2.0]]),
    (lambda m, x: mask(m, x, [False] * 3), 1.0),
    (lambda m, x: index(m, x, [2, 0]), [[1.0] * 4, [2.0] * 4]),
    (lambda m, x: (index(m, x, [2, 0]), index(m, x, [1, -1])), [8.0, 9.0]),
    (lambda m, x: (slice(1, None), index(m, x, [3, 0])), [8.0, 9.0]),
    (lambda m, x: (1, index(m, x, [3, 0])), [8.0, 9.0]),
    (lambda m, x: [0, 2], 4.0),
    (lambda m, x: index(m, x, -1), 4.0),
]


@pytest.mark.parametrize("case", range(len(WRITES)))
def test_writing(device, case):
    place, value = WRITES[case]

    def run(lib: Any, **where: Any) -> Any:
        x = lib.tensor(np.arange(-6.0, 6.0, dtype=np.float32).reshape(3, 4), **where)
        lists = isinstance(value, list)
        x[place(lib, x)] = lib.tensor(value, **where) if lists else value
        return x

    assert_same(run(minitorch, device=device), run(torch))


def test_writing_converts_the_value(device):
    x = minitorch.zeros(3, dtype=minitorch.int64, device=device)
    x[0] = 2.9
    x[1:] = minitorch.tensor([1.5, -1.5], device=device)
    assert x.tolist() == [2, 1, -1]
    b = minitorch.zeros(2, dtype=minitorch.bool, device=device)
    b[0] = 3
    assert b.tolist() == [True, False]


def test_writing_through_a_view(device):
    x = minitorch.zeros(3, 4, device=device)
    x.T[1] = 1.0
    x[1][2] = 5.0
    x[:, ::2][0] = minitorch.tensor([7.0, 8.0], device=device)
    assert x.tolist() == [[7.0, 1.0, 8.0, 0.0], [0, 1.0, 5.0, 0], [0, 1.0, 0, 0]]
    x[0] += 1
    assert x[0].tolist() == [8.0, 2.0, 9.0, 1.0]


def test_overlapping_writes(device):
    x = minitorch.arange(6, device=device)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    y = minitorch.arange(6, device=device)
    y[:-1] = y[1:]
    assert y.tolist() == [1, 2, 3, 4, 5, 5]


def test_integer_values_of_an_empty_index(device):
    x = minitorch.arange(3, device=device)
    x[index(minitorch, x, [])] = 5
    assert x.tolist() == [0, 1, 2]


# ------------------------------------------------------------ gather, scatter, sorting


@given(data=st.data(), seed=seeds, layout=layouts)
def test_gather_and_scatter_add(device, data, seed, layout):
    shape = data.draw(small_shapes(1, 3, 4).filter(lambda s: 0 not in s))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, array = sample(device, shape, minitorch.float64, layout, seed)
    size = list(shape)
    size[dim] = data.draw(st.integers(0, 5))
    rng = np.random.default_rng(seed)
    places = rng.integers(0, shape[dim], size)
    where, t = minitorch.tensor(places, device=device), torch.from_numpy(array)
    assert_same(x.gather(dim, where), t.gather(dim, torch.from_numpy(places)))
    src = rng.standard_normal(size)
    mine = x.scatter_add(dim, where, minitorch.tensor(src, device=device))
    theirs = t.scatter_add(dim, torch.from_numpy(places), torch.from_numpy(src))
    assert_same(mine, theirs, 1e-12)


@pytest.mark.parametrize("name", ["scatter_", "scatter_add_", "index_add_"])
def test_writes_with_operands_of_the_same_memory(device, name):
    """Columns with gaps between, numbers that are overwritten while they are read, and
    indices that are written to."""
    for kind in (minitorch.float64, minitorch.float16, minitorch.int64):
        x = minitorch.arange(24, device=device).to(kind).reshape(4, 6)
        t = torch.arange(24).to(getattr(torch, kind.name)).reshape(4, 6)
        where = [1, 2, 0] if name == "index_add_" else [[1, 2, 0]] * 3
        i = minitorch.tensor(where, device=device)
        getattr(x[:, 1:4], name)(1, i, x[:, 2:5] if name == "index_add_" else x[:3, :3])
        source = t[:, 2:5] if name == "index_add_" else t[:3, :3]
        getattr(t[:, 1:4], name)(1, torch.tensor(where), source.clone())
        assert_same(x, t)
    both = minitorch.tensor([2, 0, 1], device=device)
    getattr(both, name)(0, both, both)
    theirs = torch.tensor([2, 0, 1])
    assert_same(both, getattr(theirs.clone(), name)(0, theirs, theirs))


@given(data=st.data(), seed=seeds, layout=layouts, descending=st.booleans())
def test_sort_is_stable(device, data, seed, layout, descending):
    shape = data.draw(small_shapes(1, 3, 5))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, array = sample(device, shape, minitorch.int64, layout, seed)
    array = array // 3
    t = torch.from_numpy(array)
    x = minitorch.tensor(array, device=device)
    mine = x.sort(dim, descending=descending)
    theirs = torch.sort(t, dim=dim, descending=descending, stable=True)
    assert_same(tuple(mine), tuple(theirs))
    assert_same(x.argsort(dim, descending), theirs.indices)


def test_sort_with_nan(device):
    values = [3.0, float("nan"), -1.0, float("inf"), float("-inf")]
    for descending in (False, True):
        mine = minitorch.tensor(values, device=device).sort(descending=descending)
        theirs = torch.sort(torch.tensor(values), descending=descending, stable=True)
        assert_same(tuple(mine), tuple(theirs))


def test_names_of_pairs(device):
    x = minitorch.tensor([[1.0, 3.0, 2.0]], device=device)
    for pair in (x.sort(), x.topk(2), x.max(1), x.min(dim=1, keepdim=True)):
        values, indices = pair
        assert pair.values is values and pair.indices is indices
        assert indices.dtype is minitorch.int64 and isinstance(values, Tensor)


def test_an_array_without_dims_is_a_number(device):
    x = minitorch.tensor([[1, 2], [3, 4]], device=device)
    assert x[np.array(1)].tolist() == [3, 4]
    assert x[:, np.array(-1)].tolist() == [2, 4]
