"""Where minitorch differs from PyTorch on purpose.

With this file the fuzzer knows what not to report. `NOT_SUPPORTED` and `MORE_ALLOWED`
are decisions: one library refuses, with an error that says so, what the other does.
`NOT_DRAWN` are lines whose values differ by decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

# minitorch refuses, PyTorch does it: (what our error says, why).
NOT_SUPPORTED: tuple[tuple[str, str], ...] = (
    ("mT: expected 2 dimensions or more, got \\(\\)", "deprecated there"),
    ("masked_fill: .* does not fit into", "PyTorch drops the fraction"),
    ("in-place change of an expanded tensor", "PyTorch warns in an assignment"),
    ("that backward needs was changed in place", "both operands of a * b are saved"),
    ("this graph was already used by a backward pass", "the same"),
)
# PyTorch refuses, minitorch does it: (what its error says, why).
MORE_ALLOWED: tuple[tuple[str, str], ...] = (
    ("not (implemented for|support).* '?[Bb]ool", "bools are folded as 0 and 1"),
    ("Boolean inputs not supported|does not support bool", "the same"),
    ("the written-to tensor refer to a single memory", "the operand is copied"),
    ("Index put requires the source and destination dtypes match", "it is converted"),
    ("Trying to backward through the graph a second", "nothing that is freed is used"),
    ("A view was created in no_grad mode", "it is recorded like others"),
    ("matrix_norm: dim must be a 2-tuple", "norms go over any number of dims"),
    ("function that returns multiple views", "parts of a split are views like others"),
    ("output with shape \\[\\] doesn't match the broadcast", "logsumexp over no dims"),
    ("derivative for aten::remainder", "of a number's remainder there is a gradient"),
    ("INTERNAL ASSERT FAILED .*bug to PyTorch", "of True ** x there is a gradient"),
    ("ScatterAddBackward0 returned an invalid gradient", "src may be the larger one"),
)


def accepted(expected: Exception | None, got: Exception | None) -> bool:
    """Whether it is a decision that one of the libraries raises this, or none."""
    if got is not None and expected is None:
        return any(re.search(pattern, str(got)) for pattern, _ in NOT_SUPPORTED)
    if expected is not None and got is None:
        return any(re.search(pattern, str(expected)) for pattern, _ in MORE_ALLOWED)
    return False


def left_out(line: str, used: list[torch.Tensor]) -> bool:
    """Whether a line is not drawn; `used` are the tensors that it names."""
    return any(
        re.search(pattern, line) and any(map(holds, used))
        for pattern, holds in NOT_DRAWN
    )


def _has_nan(x: torch.Tensor) -> bool:
    return bool(x.isnan().any())


def _at_a_bound(x: torch.Tensor) -> bool:
    return bool(sum((x == bound).any() for bound in (-1, 0, 0.5, 1)))


# Lines that differ in their values, by decision: (what, for which tensors).
NOT_DRAWN: tuple[tuple[str, Callable[[torch.Tensor], bool]], ...] = (
    # Its gradient is 0 at a NaN, and at a bound that is a number from PyTorch 2.14 on.
    (r"\bclamp_?\(", lambda x: x.requires_grad and (_has_nan(x) or _at_a_bound(x))),
    (r"\belu\(", lambda x: x.requires_grad and _has_nan(x)),  # NaN; PyTorch's is 1
    (r"\b(amax|amin)\(", lambda x: x.requires_grad and _has_nan(x)),  # NaN / 0 there
    (r"\b(var|std)\(dim=\(\)", lambda x: x.requires_grad),  # divided by 0 there
    # Of one number without dims PyTorch's gradient is infinite where the number is NaN.
    (r"\b(var|std)\(", lambda x: x.requires_grad and x.dim() == 0 and _has_nan(x)),
    (r"\bgelu\(", lambda x: bool(x.isinf().any())),  # NaN in PyTorch's vectors of 8
    # 0 x NaN among the other factors is NaN here; PyTorch counts the zeros instead.
    (r"\bprod\(", lambda x: x.requires_grad and not bool(x.isfinite().all())),
    (r"\bsign\(", _has_nan),  # it stays NaN here, as in NumPy; PyTorch's is 0
)
