"""Whose word the right outputs are: "PyTorch says" only where PyTorch was asked.

And that there is one for all inputs that the search for small ones comes by.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from assignments import catalog
from assignments.checks import Properties, Speed
from assignments.shrink import _least

CHECKS = [
    pytest.param(check, id=f"{check.task}-{check.name}")
    for assignment in catalog.load_all()
    for check in assignment.checks()
    if not isinstance(check, Properties)
]
SIZED = [check for check in CHECKS if not isinstance(check.values[0], Speed)]


class Asked(TorchFunctionMode):
    """Counts the calls of PyTorch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("check", CHECKS)
def test_pytorch_is_named_where_it_was_asked(check, monkeypatch):
    asked = Asked()
    shapes = torch.broadcast_shapes  # which is computed without tensors

    def broadcast_shapes(*given):
        asked.count += 1
        return shapes(*given)

    monkeypatch.setattr(torch, "broadcast_shapes", broadcast_shapes)
    if isinstance(check, Speed):
        cases = [check.make_inputs(0, 0)]
    else:
        cases = list(islice(check.cases(0), 6))
    for inputs in cases:
        with asked:
            check.expected(**inputs)
    assert asked.count or check.oracle != "PyTorch"


@pytest.mark.parametrize("check", SIZED)
def test_an_oracle_answers_where_a_size_is_the_least(check):
    for draw, sizes in islice(check.draws(0), len(check.edges)):
        for name in sizes:
            least = {**sizes, name: _least(check, name, sizes[name])}
            check.expected(**check.inputs(draw, **least))
