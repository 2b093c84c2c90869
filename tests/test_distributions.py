"""`Categorical` against PyTorch: probabilities, gradients, and what is drawn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import minitorch
from minitorch.distributions import Categorical


@pytest.mark.parametrize("by", ["probs", "logits"])
@pytest.mark.parametrize("rows", [(), (2,), (2, 3)])
def test_categorical(by, rows):
    """A weight of 0 has a finite logarithm; classes may have dims before those rows."""

    def program(lib: Any, kind: Any) -> list[Any]:
        x = (lib.arange(24.0)[: 4 * lib.ones(rows).numel()] % 5).reshape(*rows, 4)
        x = x.requires_grad_()
        c = kind(**{by: x})
        found = [c.probs, c.logits, c.entropy(), c.log_prob(lib.tensor(2))]
        found.append(c.log_prob(lib.ones(3, *rows).long()))
        sum(t.sum() * (i + 1) for i, t in enumerate(found)).backward()
        sizes = c.sample().shape, c.sample((3,)).shape, c.batch_shape
        return [t.detach() for t in found] + [x.grad, [tuple(s) for s in sizes]]

    *mine, sizes = program(minitorch, Categorical)
    *theirs, expected = program(torch, torch.distributions.Categorical)
    assert sizes == expected
    for a, b in zip(mine, theirs):
        assert a.numpy() == pytest.approx(b.numpy(), rel=1e-5, abs=1e-6)


def test_a_class_that_cannot_be_and_rows_that_are_broadcast():
    def program(lib: Any, kind: Any) -> list[Any]:
        x = lib.tensor([[0.0, 1.0, -float("inf")], [0.5, 0.0, 2.0]]).requires_grad_()
        c = kind(logits=x)
        entropy = c.entropy()
        entropy.sum().backward()
        values = [lib.tensor(v) for v in ([1], [[0], [1], [1]])]
        return [entropy.detach(), x.grad, *[c.log_prob(v).detach() for v in values]]

    both = zip(
        program(minitorch, Categorical), program(torch, torch.distributions.Categorical)
    )
    for mine, theirs in both:
        assert mine.shape == theirs.shape
        assert mine.numpy() == pytest.approx(theirs.numpy(), rel=1e-5, abs=1e-6)


def test_draws_come_as_often_as_they_should():
    minitorch.manual_seed(0)
    drawn = Categorical(minitorch.tensor([[1.0, 3.0], [0.0, 2.0]])).sample((2000,))
    assert drawn.dtype is minitorch.int64 and drawn.shape == (2000, 2)
    assert drawn.float().mean(0).tolist() == pytest.approx([0.75, 1.0], abs=0.03)


def test_errors():
    x = minitorch.ones(3)
    for arguments in ({}, {"probs": x, "logits": x}):
        with pytest.raises(ValueError, match="give either probs or logits"):
            Categorical(**arguments)
    with pytest.raises(ValueError, match="got a number"):
        Categorical(minitorch.tensor(1.0))
