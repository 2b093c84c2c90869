"""default_collate against PyTorch's, structure by structure."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch.data import default_collate

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests")
torch_data = pytest.importorskip("torch.utils.data")

Pair = namedtuple("Pair", ["a", "b"])

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
dtypes = st.sampled_from([np.float32, np.float64, np.int64, np.int32, np.bool_])
leaves = st.one_of(
    st.tuples(st.just("array"), shapes, dtypes),
    st.sampled_from(["int", "float", "bool", "str"]).map(lambda kind: (kind,)),
)
structures = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("tuple"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("list"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("pair"), st.tuples(inner, inner)),
        st.tuples(st.just("dict"), st.dictionaries(st.text(max_size=2), inner)),
    ),
    max_leaves=5,
)


def build(structure: Any, rng: np.random.Generator, leaf: Any) -> Any:
    """A random sample of this structure; `leaf` makes a tensor of an array."""
    kind, *rest = structure
    if kind == "array":
        return leaf(np.asarray(rng.integers(0, 9, rest[0])).astype(rest[1]))
    if kind in ("int", "float", "bool"):
        number = rng.integers(0, 9)
        return {"int": int, "float": float, "bool": bool}[kind](number)
    if kind == "str":
        return str(rng.integers(0, 9))
    if kind == "dict":
        return {key: build(part, rng, leaf) for key, part in rest[0].items()}
    parts = [build(part, rng, leaf) for part in rest[0]]
    return (
        Pair(*parts) if kind == "pair" else (tuple if kind == "tuple" else list)(parts)
    )


def check(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, minitorch.Tensor)
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        return
    assert type(ours) is type(theirs)
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            check(ours[key], theirs[key])
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            check(a, b)
    else:
        assert ours == theirs


@given(
    structure=structures,
    n=st.integers(1, 4),
    seed=st.integers(0, 99),
    raw=st.booleans(),
)
def test_same_as_pytorch(structure: Any, n: int, seed: int, raw: bool) -> None:
    def batch(leaf: Any) -> list[Any]:
        rng = np.random.default_rng(seed)
        return [build(structure, rng, leaf) for _ in range(n)]

    keep = lambda array: array
    ours = default_collate(batch(keep if raw else minitorch.from_numpy))
    theirs = torch_data.default_collate(batch(keep if raw else torch.from_numpy))
    check(ours, theirs)


def test_other_mappings_keep_their_type() -> None:
    batch = default_collate([OrderedDict(a=1), OrderedDict(a=2)])
    assert type(batch) is OrderedDict
    assert batch["a"].tolist() == [1, 2]


def test_strided_tensors() -> None:
    x = minitorch.arange(12).reshape(3, 4)
    samples = [x.transpose(0, 1), x.flip(0).transpose(0, 1)]
    expected = np.stack([s.numpy() for s in samples])
    np.testing.assert_array_equal(default_collate(samples).numpy(), expected)


def test_gradients_flow_to_the_samples() -> None:
    samples = [minitorch.ones(2, requires_grad=True) for _ in range(3)]
    (default_collate(samples) * 2).sum().backward()
    assert [s.grad.tolist() for s in samples] == [[2.0, 2.0]] * 3


def test_the_device_is_kept() -> None:
    samples = [minitorch.ones(2, device="simple") for _ in range(3)]
    assert default_collate(samples).device == "simple"


ERRORS = [
    ([], ValueError, "no samples"),
    ([object()], TypeError, "a sample is a object; expected tensors"),
    ([None, None], TypeError, "a NoneType.* pass a collate_fn"),
    ([(1, 2), (1,)], ValueError, "sample 0 has 2 parts and sample 1 has 1"),
    ([{"a": 1}, {"b": 1}], ValueError, r"keys \['a'\] and sample 1 \['b'\]"),
    ([1, "x"], TypeError, "sample 0 is a int and sample 1 a str"),
    ([np.zeros(2), np.zeros(3)], ValueError, r"shape \(2,\) and sample 1 has \(3,\)"),
]


@pytest.mark.parametrize(("samples", "error", "message"), ERRORS)
def test_errors(samples: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        default_collate(samples)


def test_tensors_of_several_shapes() -> None:
    with pytest.raises(ValueError, match=r"sample 2 has \(1, 2\).* Pad"):
        default_collate([minitorch.ones(2), minitorch.ones(2), minitorch.ones(1, 2)])
