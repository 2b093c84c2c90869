"""Views that are changed in place, and views of what is changed: as in PyTorch.

Each program runs with both libraries and returns what it saw.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import minitorch
from minitorch import Tensor


class Library:
    """The few functions that the programs need, on one device."""

    def __init__(self, library: Any, **where: Any) -> None:
        self.library, self.where = library, where

    def zeros(self, *shape: int) -> Any:
        return self.library.zeros(*shape, **self.where)

    def ones(self, *shape: int) -> Any:
        return self.library.ones(*shape, **self.where)

    def leaf(self, values: Any) -> Any:
        return self.library.tensor(values, requires_grad=True, **self.where)


def add_to_a_row(lib: Library) -> list[Any]:
    w, b = lib.leaf([1.0, 2.0, 3.0]), lib.zeros(2, 3)
    b[0] += w
    (b * b).sum().backward()
    return [b, w.grad]


def add_to_a_reshaped_result(lib: Library) -> list[Any]:
    w = lib.leaf([[1.0, 2.0], [3.0, 4.0]])
    h = (w * 2).view(4)
    h += 1.0
    (h * h).sum().backward()
    return [h, w.grad]


def multiply_a_transposed_view(lib: Library) -> list[Any]:
    w, s = lib.leaf([[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]]), lib.leaf(3.0)
    q = w * 1
    q.T.mul_(s)
    (q**2).sum().backward()
    return [q, w.grad, s.grad]


def view_from_before_there_was_a_graph(lib: Library) -> list[Any]:
    w, b = lib.leaf([7.0]), lib.ones(3)
    v = b.view(3, 1)
    v.mul_(w)
    (b * b).sum().backward()
    return [b, v, w.grad]


def base_changed_after_the_view(lib: Library) -> list[Any]:
    w, b = lib.leaf([2.0]), lib.ones(3)
    v = b[1:]
    b.mul_(w)
    (v * v).sum().backward()
    return [v, w.grad]


def a_stale_view_by_itself(lib: Library) -> list[Any]:
    w, b = lib.leaf(2.0), lib.ones(4)
    v = b[1:]
    b.add_(w)
    v.sum().backward()
    return [v, w.grad]


def two_overlapping_windows(lib: Library) -> list[Any]:
    w, b = lib.leaf([2.0, 3.0]), lib.zeros(4)
    v = b[:2]
    v += w
    u = b[1:3]
    u *= 2
    (b * b).sum().backward()
    return [b, v, u, w.grad]


def stale_view_that_repeats_elements(lib: Library) -> list[Any]:
    w, b = lib.leaf([2.0, 3.0]), lib.zeros(2, 2)
    e = b[0].expand(3, 2)
    b[0] = w
    (e * e).sum().backward()
    return [e, w.grad]


def a_recurrence_in_place(lib: Library) -> list[Any]:
    w, z = lib.leaf([1.0, 2.0, 3.0]), lib.zeros(3)
    for i in range(3):
        z[i] = w[i] * (z[i - 1].clone() if i else 1)
    z.sum().backward()
    return [z, w.grad]


def a_column_of_a_result(lib: Library) -> list[Any]:
    w = lib.leaf([[1.0, 2.0], [3.0, 4.0]])
    h = w * 1
    h[:, 1].mul_(h[:, 0].clone())
    (h * h).sum().backward()
    return [h, w.grad]


def a_view_of_a_view(lib: Library) -> list[Any]:
    w, b = lib.leaf([[2.0], [3.0]]), lib.ones(2, 3, 4)
    b[1].T[1:3, :2].mul_(w)
    (b * b).sum().backward()
    return [b, w.grad]


def bounds_and_a_mask_in_windows(lib: Library) -> list[Any]:
    w = lib.leaf([[1.0, -2.0, 0.5], [3.0, -4.0, 8.0]])
    h = w * 1
    h.T[1:].clamp_(-3.0, 2.0)
    h[0].masked_fill_(h[0] > 0.75, 7.0)
    (h * h).sum().backward()
    return [h, w.grad]


def nothing_recorded(lib: Library) -> list[Any]:
    b = lib.zeros(2, 3)
    v = b[:, 1]
    v += 2.0
    b.view(6)[0] = 5.0
    return [b, v]


PROGRAMS = (
    add_to_a_row,
    add_to_a_reshaped_result,
    multiply_a_transposed_view,
    view_from_before_there_was_a_graph,
    base_changed_after_the_view,
    a_stale_view_by_itself,
    two_overlapping_windows,
    stale_view_that_repeats_elements,
    a_recurrence_in_place,
    a_column_of_a_result,
    a_view_of_a_view,
    bounds_and_a_mask_in_windows,
    nothing_recorded,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_in_pytorch(program, device):
    mine = program(Library(minitorch, device=device))
    theirs = program(Library(torch))
    assert [x.tolist() for x in mine] == [x.tolist() for x in theirs]
    assert [x.requires_grad for x in mine] == [x.requires_grad for x in theirs]


def test_a_view_read_without_recording_shows_the_new_numbers(device):
    w = minitorch.tensor(2.0, device=device, requires_grad=True)
    base = minitorch.zeros(3, device=device)
    view = base[1:]
    base.add_(w)
    with minitorch.no_grad():
        assert view.sum().item() == 4.0


def test_a_base_with_gaps_says_what_to_do(device):
    w = minitorch.tensor(2.0, device=device, requires_grad=True)
    base = Tensor(minitorch.zeros(3, 2, device=device).raw.permute((1, 0)))
    assert not base.is_contiguous()
    with pytest.raises(RuntimeError, match="contiguous"):
        base[0].mul_(w)


def test_the_operand_may_be_another_window_of_the_memory(device):
    """PyTorch raises an error here; in NumPy, too, the operand is read first."""
    a = minitorch.tensor([1.0, 2.0, 3.0, 4.0], device=device)
    a[1:] += a[:-1]
    assert a.tolist() == [1.0, 3.0, 5.0, 7.0]
    b = minitorch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    b *= b.T
    assert b.tolist() == [[1.0, 6.0], [6.0, 16.0]]
