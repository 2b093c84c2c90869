"""Views and copies: shapes, what shares memory, joining and splitting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operations import TORCH_DTYPES, assert_same
from strategies import dtype_names, layouts, sample, seeds, small_shapes, tensors

import minitorch

VIEWS = {
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(2, 2, 3),
    "permute": lambda x: x.permute(1, 0),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose(0, 1),
    "expand": lambda x: x[:, :1].expand(4, 7),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(0, (2, 2)),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "select": lambda x: x.select(0, 1),
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "unbind": lambda x: x.unbind()[1],
    "movedim": lambda x: x.movedim(0, 1),
    "detach": lambda x: x.detach(),
    "contiguous": lambda x: x.contiguous(),
    "slice": lambda x: x[1:, ::2],
}
COPIES = {
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.T.contiguous(),
    "reshape": lambda x: x.T.reshape(-1),
    "flip": lambda x: x.flip(0),
    "repeat": lambda x: x.repeat(1, 1),
    "cat": lambda x: minitorch.cat([x]),
    "stack": lambda x: minitorch.stack([x]),
    "pad": lambda x: x.pad((0, 0)),
    "tril": lambda x: x.tril(9),
    "to": lambda x: x.to(minitorch.float64),
    "list": lambda x: x[[0, 1]],
    "mask": lambda x: x[x == x],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(device, name):
    x = minitorch.zeros(4, 3, device=device)
    y = VIEWS[name](x)
    assert y.raw.storage is x.raw.storage
    x.fill_(1.0)
    assert y.sum().item() == y.numel()
    if name != "expand":  # where several elements are one place in memory
        y.fill_(2.0)
        assert x.sum().item() >= 13


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not(device, name):
    x = minitorch.zeros(4, 3, device=device)
    y = COPIES[name](x)
    y.fill_(1.0)
    assert x.sum().item() == 0 and y.is_contiguous()


def test_to_gives_the_same_tensor_where_nothing_changes(device):
    x = minitorch.zeros(2, device=device)
    assert x.to(device) is x and x.to(minitorch.float32) is x and x.float() is x
    assert x.contiguous() is x
    assert x.to(device=device, dtype=minitorch.int64).dtype is minitorch.int64
    assert x.to(minitorch.zeros(1, dtype=minitorch.float64)).device == "cpu"
    assert x.to("simple").cpu().device == "cpu"


@given(data=st.data(), seed=seeds)
def test_cat_and_stack(device, data, seed):
    shape = data.draw(small_shapes(1, 3))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for i in range(data.draw(st.integers(1, 4))):
        size = list(shape)
        size[dim] = data.draw(st.integers(0, 4))
        dtype, layout = data.draw(dtype_names), data.draw(layouts)
        parts.append(sample(device, tuple(size), dtype, layout, seed + i))
    mine = minitorch.cat([p.tensor for p in parts], dim)
    theirs = torch.cat([torch.tensor(p.array) for p in parts], dim)
    assert_same(mine, theirs)
    place = data.draw(st.integers(-len(shape) - 1, len(shape)))
    first = parts[0]
    mine = minitorch.stack([first.tensor, first.tensor], place)
    assert_same(mine, torch.stack([torch.tensor(first.array)] * 2, place))


@given(data=st.data())
def test_split_and_cat_are_inverse(device, data):
    x, _ = data.draw(tensors(device, small_shapes(1, 3)))
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1))
    size = data.draw(st.integers(1, 4))
    parts = x.split(size, dim)
    assert minitorch.cat(parts, dim).equal(x) or x.isnan().any()
    assert all(p.size(dim) == size for p in parts[:-1])


@given(data=st.data())
def test_permute_and_flip_undo_themselves(device, data):
    x, array = data.draw(tensors(device))
    order = data.draw(st.permutations(range(x.dim())))
    back = np.argsort(order).tolist() if order else []
    assert x.permute(order).permute(back).tolist() == array.tolist()
    dims = data.draw(st.sets(st.integers(0, x.dim() - 1))) if x.dim() else set()
    if dims:
        assert x.flip(*dims).tolist() == np.flip(array, tuple(dims)).tolist()


@given(data=st.data())
def test_triangles_of_any_matrix(device, data):
    x, array = data.draw(tensors(device, small_shapes(2, 3)))
    diagonal = data.draw(st.integers(-5, 5))
    t = torch.tensor(array)
    assert_same(x.tril(diagonal), t.tril(diagonal))
    assert_same(minitorch.triu(x, diagonal), t.triu(diagonal))


def test_casts_between_all_dtypes(device):
    values = np.array([0.0, 1.0, -2.0, 3.7])
    for a, s in TORCH_DTYPES.items():
        x = minitorch.tensor(values, device=device).to(a)
        t = torch.tensor(values).to(s)
        for b, u in TORCH_DTYPES.items():
            assert_same(x.to(b), t.to(u), what=f"{a} to {b}")
            assert_same(x.type(b)[::2], t.to(u)[::2])


def test_gradients_of_parts_lie_as_the_whole_did():
    """Features -> heads -> queries, keys and values, and back: one copy, into one."""
    x = minitorch.randn(2, 5, 12).requires_grad_()
    heads = x.unflatten(-1, (6, 2)).transpose(1, 2)
    parts = heads.split((2, 3, 1), 1)
    like = [minitorch.randn(2, 5, n, 2).transpose(1, 2) for n in (2, 3, 1)]
    seen = []
    heads.register_hook(lambda grad: seen.append(grad.transpose(1, 2).is_contiguous()))
    grads = minitorch.autograd.grad(parts, x, like)
    assert seen == [True]
    right = np.concatenate([g.transpose(1, 2).numpy() for g in like], 2)
    assert np.array_equal(grads[0].numpy(), right.reshape(2, 5, 12))
