"""Corners of single operations: PyTorch's answer, or an error where it has an error.

Each case is written once, for both libraries, and runs on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from operations import assert_same

import minitorch

inf, nan = math.inf, math.nan


class Library:
    """One of the two libraries, with short names for tensors on a device."""

    def __init__(self, library: Any, device: str) -> None:
        self.m = library
        self.where = {"device": device} if library is minitorch else {}

    def __call__(self, data: Any, dtype: str | None = None) -> Any:
        kind = None if dtype is None else getattr(self.m, dtype)
        return self.m.tensor(data, dtype=kind, **self.where)

    def ones(self, *shape: int) -> Any:
        """Ones of a shape."""
        return self.m.ones(*shape, **self.where)


ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
Case = Callable[[Library], Any]

ANSWERS: dict[str, Case] = {
    # types
    "int64 ** 2.0": lambda t: t([1, -2, 3]) ** 2.0,
    "int32 ** 2.0": lambda t: t([1, -2, 3], "int32") ** 2.0,
    "int64 ** 2": lambda t: t([1, -2, 3]) ** 2,
    "int64 ** 0.5": lambda t: t([1, 4, 9]) ** 0.5,
    "bool ** 2.0": lambda t: t([True, False]) ** 2.0,
    "bool ** 2": lambda t: t([True, False]) ** 2,
    "bool ** 3": lambda t: t([True, False]) ** 3,
    "square of bools": lambda t: t([True, False]).square(),
    "int ** negative ints": lambda t: 3 ** t([-2, -1, 0, 1, 2]),
    "ints ** negative ints": lambda t: (
        t([[2], [1], [0], [-1], [-3]]) ** t([-3, -2, -1, 0, 1, 3])
    ),
    "int32 ** negative int32": lambda t: (
        t([5, 1, -1, -1], "int32") ** t([-1, -2, -2, -3], "int32")
    ),
    "int64 ** float": lambda t: t([1, 2, 3]) ** t([2.0, -1.0, 0.5]),
    "float % int": lambda t: 5.5 % t([2, 3, -4]),
    "int % float": lambda t: 7 % t([2.5, -2.5]),
    "int % int32": lambda t: 7 % t([2, -3], "int32"),
    "true % float": lambda t: True % t([0.75]),
    "ints // float": lambda t: t([7, -7]) // 2.0,
    "empty // 0": lambda t: t([], "int64") // 0,
    "empty % 0": lambda t: t([], "int64") % 0,
    "sum to int32": lambda t: t([True, True, False]).sum(dtype=t.m.int32),
    "sum of floats to int32": lambda t: t([1.7, 1.7]).sum(dtype=t.m.int32),
    "sum of int32 to int32": lambda t: t([2**30] * 4, "int32").sum(dtype=t.m.int32),
    "sum of int8": lambda t: t([100] * 4, "int8").sum(),
    "sum of int8 to int8": lambda t: t([100] * 4, "int8").sum(dtype=t.m.int8),
    "int8 + int8": lambda t: t([127, -128], "int8") + t([1, -1], "int8"),
    "int8 * 3": lambda t: t([100, -100], "int8") * 3,
    "-int8": lambda t: -t([-128], "int8"),
    "int8 @ int8": lambda t: t([[100, 100]], "int8") @ t([[3], [2]], "int8"),
    "int8 + int32": lambda t: t([100], "int8") + t([100], "int32"),
    "int8 + bool": lambda t: t([100], "int8") + t([True]),
    "int8 / int8": lambda t: t([100], "int8") / t([3], "int8"),
    "sort of int8": lambda t: t([3, -128, 127, 0], "int8").sort().values,
    "floats to int8": lambda t: t([-1.7, 1.7, 126.9]).to(t.m.int8),
    "int8 to others": lambda t: t([-128, 127], "int8").to(t.m.float32),
    "sum to bool": lambda t: t([0, 0, 3]).sum(dtype=t.m.bool),
    "sum of a dim to int32": lambda t: t([[1, 2], [3, 4]]).sum(0, dtype=t.m.int32),
    "sum of bools to floats": lambda t: t([True, True]).sum(dtype=t.m.float32),
    "add alpha to bools": lambda t: t.m.add(t([True]), t([True]), alpha=2),
    "bools & True": lambda t: True & t([True, False]),
    "bools | True": lambda t: True | t([True, False]),
    "bools ^ True": lambda t: True ^ t([True, False]),
    # numbers that are too large
    "2**63 as a float": lambda t: t([2**63], "float32"),
    "2**70 among floats": lambda t: t([2**70, 1.5]),
    "the ends of int64": lambda t: t([2**63 - 1, -(2**63)]),
    "the ends of int32": lambda t: t([2**31 - 1, -(2**31)], "int32"),
    # masks
    "mask with a column": lambda t: t(ROWS).masked_select(t([[True], [False]])),
    "mask of a row": lambda t: t(ROWS).masked_select(t([True, False, True])),
    "mask without dims": lambda t: t(ROWS).masked_select(t(True)),
    "mask without dims, false": lambda t: t(ROWS).masked_select(t(False)),
    "mask of more dims": lambda t: t([1.0, 2.0]).masked_select(t([[True, False]] * 2)),
    "mask of one number": lambda t: t(3.0).masked_select(t([True, False, True])),
    "mask and number without dims": lambda t: t(3.0).masked_select(t(True)),
    "fill with a tensor": lambda t: t([1, 2]).masked_fill(t([True, False]), t(7)),
    "fill keeps the dtype": lambda t: t([1.0, 2.0]).masked_fill(
        t([True, False]), t(7.0, "float64")
    ),
    # no dimensions
    "softmax of nan": lambda t: t(nan).softmax(0),
    "softmax of inf": lambda t: t(inf).softmax(-1),
    "softmax of a number": lambda t: t(3.0).softmax(0),
    "log_softmax of -inf": lambda t: t(-inf).log_softmax(0),
    "log_softmax of nan": lambda t: t(nan).log_softmax(0),
    "log_softmax of a number": lambda t: t(3.0).log_softmax(-1),
    "index_select": lambda t: t(3.0).index_select(0, t([0])),
    "index_select by a number": lambda t: t([3.0, 4.0]).index_select(0, t(1)),
    "movedim": lambda t: t(3.0).movedim(0, -1),
    "flip": lambda t: t(3.0).flip(0),
    "any of no dims": lambda t: t([[1, 0], [0, 0]]).any(dim=()),
    "all of no dims": lambda t: t([[1, 0], [0, 0]]).all(dim=(), keepdim=True),
    "meshgrid": lambda t: t.m.meshgrid(t(1), t([1, 2]), indexing="ij"),
    "meshgrid of one": lambda t: t.m.meshgrid(t([1, 2]), indexing="xy"),
    # no elements
    "logsumexp": lambda t: t.ones(2, 0).logsumexp(1),
    "logsumexp of nothing": lambda t: t([]).logsumexp(0),
    "unflatten with an empty dim": lambda t: t.ones(2, 0).unflatten(0, (2, -1)),
    # others
    "narrow from the end": lambda t: t([1.0, 2.0, 3.0]).narrow(0, -2, 2),
    "randint of a size": lambda t: t.m.randint(1, size=(2,), **t.where),
    "randint up to high": lambda t: t.m.randint(high=1, size=(2,), **t.where),
    "copy_ broadcasts": lambda t: t.ones(2, 3).copy_(t([[5.0], [6.0]])),
}

REFUSALS: dict[str, tuple[Case, str]] = {
    "mask of a wrong size": (
        lambda t: t(ROWS).masked_select(t([True, False])),
        r"masked_select: shapes \(2, 3\) and \(2,\)",
    ),
    "2**63": (lambda t: t([2**63]), "9223372036854775808 does not fit into int64"),
    "2**64": (lambda t: t([2**64]), "does not fit into int64"),
    "-2**63 - 1": (lambda t: t([-(2**63) - 1]), "does not fit into int64"),
    "2**31 as int32": (lambda t: t([2**31], "int32"), "does not fit into int32"),
    "2**7 as int8": (lambda t: t([2**7], "int8"), "128 does not fit into int8"),
    "-2**7 - 1 as int8": (lambda t: t([-129], "int8"), "does not fit into int8"),
    "fill_ an int8": (lambda t: t([1], "int8").fill_(200), "does not fit into int8"),
    "nan as an int": (lambda t: t([nan], "int64"), "nan does not fit"),
    "full": (lambda t: t.m.full((2,), 2**63, **t.where), "does not fit into int64"),
    "fill_": (lambda t: t([1], "int32").fill_(2**40), "does not fit into int32"),
    "fill_ with nan": (lambda t: t([1]).fill_(nan), "nan does not fit"),
    "new_full": (lambda t: t([1], "int32").new_full((1,), 2**40), "does not fit"),
    "number < 2**70": (lambda t: t([1]) < 2**70, "does not fit into int64"),
    "arange": (lambda t: t.m.arange(2**63, 2**63 + 3), "does not fit into int64"),
    "bool ** bool": (lambda t: t([True]) ** t([True]), "pow"),
    "bools // bools": (lambda t: t([True]) // t([True]), "floor_divide"),
    "bools % bools": (lambda t: t([True]) % t([True]), "remainder"),
    "bools - bools": (lambda t: t([True]) - t([True]), "sub"),
    "floats - True": (lambda t: t([1.0]) - True, "sub"),
    "alpha of ints": (lambda t: t.m.add(t([1]), t([1]), alpha=1.5), "add: alpha"),
    "abs of bools": (lambda t: t([True]).abs(), "abs"),
    "floor of bools": (lambda t: t([True]).floor(), "floor"),
    "argmax of bools": (lambda t: t([True]).argmax(), "argmax"),
    "argmax of dims": (lambda t: t(ROWS).argmax(dim=(0, 1)), "argmax"),
    "max of a dim": (lambda t: t(3.0).max(1), "max: dim is 1"),
    "softmax of ints": (lambda t: t([1, 2]).softmax(0), "softmax.*float"),
    "isclose of two types": (lambda t: t([1]).isclose(t([1.0])), "isclose"),
    "mm of vectors": (lambda t: t.m.mm(t.ones(3), t.ones(3)), "mm: the first"),
    "mm of stacks": (lambda t: t.ones(2, 3, 3).mm(t.ones(3, 3)), "mm: the first"),
    "bmm of matrices": (lambda t: t.m.bmm(t.ones(3, 3), t.ones(3, 3)), "bmm"),
    "bmm broadcast": (lambda t: t.ones(1, 3, 3).bmm(t.ones(2, 3, 3)), "bmm: a is"),
    "mv of matrices": (lambda t: t.ones(3, 3).mv(t.ones(3, 3)), "mv: the second"),
    "mv of vectors": (lambda t: t.m.mv(t.ones(3), t.ones(3)), "mv: the first"),
    "dot of matrices": (lambda t: t.m.dot(t.ones(3, 3), t.ones(3, 3)), "dot"),
    "copy_ of more dims": (
        lambda t: t.ones(4, 4).copy_(t.ones(1, 1, 4)),
        r"copy_: .*\(1, 1, 4\).*\(4, 4\)",
    ),
    "copy_ of one number": (lambda t: t(1.0).copy_(t([2.0])), "copy_"),
    "fill_ with a vector": (lambda t: t.ones(2).fill_(t.ones(2)), "fill_"),
    "masked_fill with a vector": (
        lambda t: t.ones(2).masked_fill(t([True, False]), t.ones(2)),
        "masked_fill",
    ),
    "masked_fill_ grows": (
        lambda t: t.ones(3).masked_fill_(t([[True, True, False]]), 2.0),
        "masked_fill_",
    ),
    "index_select of many": (lambda t: t(3.0).index_select(0, t([0, 0])), "index_sel"),
    "unflatten": (lambda t: t(3.0).unflatten(0, (1, 1)), "unflatten: dim is 0"),
    "unflatten sizes": (lambda t: t.ones(2, 0).unflatten(0, (1, 1)), "unflatten"),
    "size": (lambda t: t(3.0).size(0), "size: dim is 0"),
    "select": (lambda t: t(3.0).select(0, 0), "select: dim is 0"),
    "narrow": (lambda t: t(3.0).narrow(0, 0, 1), "narrow: dim is 0"),
    "split": (lambda t: t(3.0).split(1), "split: dim is 0"),
    "chunk": (lambda t: t(3.0).chunk(1), "dim is 0"),
    "unbind": (lambda t: t(3.0).unbind(), "dim is 0"),
    "movedim beyond": (lambda t: t(3.0).movedim(0, 1), "movedim: dim is 1"),
    "flip twice": (lambda t: t.ones(2).flip((0, 0)), "flip.*twice"),
    "repeat": (lambda t: t.ones(2).repeat(-1), "repeat"),
    "randint without a size": (lambda t: t.m.randint(5), "randint"),
    "randint of floats": (lambda t: t.m.randint(2.5, (2,)), "randint: expected ints"),
    "meshgrid of a matrix": (lambda t: t.m.meshgrid(t.ones(2, 2)), "meshgrid"),
    "topk of bools": (lambda t: t([True]).topk(1), "topk"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_are_torch_s(case, device):
    call = ANSWERS[case]
    expected = call(Library(torch, device))
    assert_same(call(Library(minitorch, device)), expected, 1e-6, case)


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_torch_s(case, device):
    call, message = REFUSALS[case]
    with pytest.raises(
        (ValueError, TypeError, RuntimeError, IndexError), match=message
    ):
        call(Library(minitorch, device))
    with pytest.raises(Exception):  # noqa: B017  torch's own types of errors are many
        call(Library(torch, device))


GRADIENTS: dict[str, tuple[list[float], Case | Any]] = {
    "remainder": ([5.5, -5.5, 7.0], lambda x: x % 3),
    "softmax": ([3.0], lambda x: x.reshape(()).softmax(0)),
    "log_softmax": ([3.0], lambda x: x.reshape(()).log_softmax(0)),
    "prod with two zeros": ([0.0, 1e30, 1e30, 0.0], lambda x: x.prod()),
    "prod with one zero": ([1e30, 1e30, 0.0], lambda x: x.prod(0)),
    "prod with zeros inside": ([1e30, 0.0, 0.0, 1e30, 1e30], lambda x: x.prod()),
    "index_select": ([3.0], lambda x: x.reshape(()).index_select(0, _zero(x))),
    "masked_select": ([1.0, 2.0], lambda x: x.masked_select(x.reshape(2, 1) > 1)),
    "power of a float": ([1.0, -2.0, 0.0], lambda x: x**2.0),
    "logsumexp": ([-inf, 1.0, 2.0], lambda x: x.logsumexp(0)),
}


def _zero(x: Any) -> Any:
    """The index [0], in the library of x."""
    m = torch if isinstance(x, torch.Tensor) else minitorch
    return m.tensor([0], device=x.device)


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_are_torch_s(case, device):
    values, call = GRADIENTS[case]
    x = minitorch.tensor(values, device=device).requires_grad_()
    y = torch.tensor(values, requires_grad=True)
    call(x).sum().backward()
    call(y).sum().backward()
    assert_same(x.grad, y.grad, 1e-6, case)


def test_gradients_of_gradients_of_remainders(device):
    x = minitorch.tensor([5.5, -2.5], device=device).requires_grad_()
    y = minitorch.tensor([2.0, 3.0], device=device).requires_grad_()
    (first,) = minitorch.grad((x * x % y).sum(), [x], create_graph=True)
    first.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_quotients_refuse_gradients(device):
    x = minitorch.ones(2, device=device).requires_grad_()
    with pytest.raises(RuntimeError, match=r"floor_divide.*\(a / b\).floor\(\)"):
        (x // 3).sum().backward()
    assert (x.detach() // 3).requires_grad is False


@pytest.mark.parametrize("operator", ["//", "%", "**", "&", "|", "^"])
def test_changes_in_place_keep_the_memory(operator, device):
    """`y = x; x %= 3` changes y, too."""
    for t in (Library(torch, device), Library(minitorch, device)):
        whole = {"&": True, "|": True, "^": True}.get(operator, 3)
        x = t([True, False]) if whole is True else t([7, 8])
        names = {"x": x, "y": x}
        exec(f"x {operator}= {whole}", names)
        assert names["x"] is x and names["y"] is x
    with pytest.raises(TypeError, match="float32, which does not fit into a int64"):
        x = minitorch.tensor([7, 8], device=device)
        x %= 2.5
