"""How many functions of ours a small operation enters, recorded, on the CPU.

The work of 32 x 32 numbers is done in a microsecond, and what is around it takes the
rest of the time; unlike time, calls can be counted on a busy machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import minitorch
import minitorch.nn.functional as F

ROOT = Path(minitorch.__file__).parents[1]
# A virtual environment may lie in the repository, too, and NumPy's functions in it.
OURS = tuple(str(ROOT / name) for name in ("minitorch", "fast_ops", "tests"))
X = minitorch.ones(32, 32, requires_grad=True)
Y = minitorch.ones(32, 32)
W = minitorch.ones(32, requires_grad=True)
ROWS = minitorch.arange(32)
MASK = Y > 0
IMAGE = minitorch.ones(1, 1, 32, 32, requires_grad=True)
KERNEL = minitorch.ones(1, 1, 3, 3, requires_grad=True)
# What PyTorch does in the least time beside ours, and the operation of docs/trace_add.
CASES: dict[str, tuple[int, Callable[[], object]]] = {
    "add": (9, lambda: X + X),
    "relu": (12, lambda: F.relu(X)),
    "clamp": (27, lambda: X.clamp(0, 1)),
    "cat": (14, lambda: minitorch.cat([X, X])),
    "stack": (17, lambda: minitorch.stack([X, X])),
    "index": (11, lambda: X[3:7]),
    "min": (21, lambda: X.min()),
    "add_": (21, lambda: Y.add_(1)),
    "zero_": (6, lambda: Y.zero_()),
    "clamp_": (27, lambda: Y.clamp_(0, 1)),
    "masked_fill_": (33, lambda: Y.masked_fill_(MASK, 0.5)),
    "dot": (19, lambda: W.dot(W)),
    "equal": (12, lambda: X.equal(X)),
    "topk": (51, lambda: X.topk(4)),
    "nll": (34, lambda: F.nll_loss(X, ROWS)),
    "einsum": (92, lambda: minitorch.einsum("ij,jk->ik", X, X)),
    "roll": (45, lambda: X.roll((3, 1), (0, 1))),
    "expand": (40, lambda: W.expand(4, 32) + X[:4]),
    "softmax": (28, lambda: F.softmax(X, dim=1)),
    "cross-entropy": (42, lambda: F.cross_entropy(X, ROWS)),
    "matmul": (12, lambda: X @ X),
    "conv2d": (24, lambda: F.conv2d(IMAGE, KERNEL)),
}


def calls_of(run: Callable[[], object]) -> int:
    """How often functions of this repository are entered; the least of three times.

    Something of another test may be thrown away meanwhile, by functions of ours.
    """
    run()  # loads and compiles
    return min(_entered(run) for _ in range(3))


def _entered(run: Callable[[], object]) -> int:
    count = 0

    def see(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(OURS)

    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", CASES)
def test_no_more_functions_are_entered(name: str) -> None:
    most, run = CASES[name]
    assert calls_of(run) - 1 <= most  # without the lambda above
