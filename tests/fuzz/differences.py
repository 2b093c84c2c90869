"""Where minitorch differs from PyTorch on purpose, and where it does so for now.

With this file the fuzzer knows what not to report. `NOT_SUPPORTED` and `MORE_ALLOWED`
are decisions: one library refuses, with an error that says so, what the other does.
`NOT_DRAWN` are lines whose values differ by decision, and `KNOWN` those that are not
drawn because a mend is under way.
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
        for pattern, holds in NOT_DRAWN + KNOWN
    )


def _has_nan(x: torch.Tensor) -> bool:
    return bool(x.isnan().any())


# Lines that differ in their values, by decision: (what, for which tensors).
NOT_DRAWN: tuple[tuple[str, Callable[[torch.Tensor], bool]], ...] = (
    (r"\bclamp_?\(", lambda x: x.requires_grad and _has_nan(x)),  # its gradient is 0
    (r"\b(amax|amin)\(", lambda x: x.requires_grad and _has_nan(x)),  # NaN / 0 there
    (r"\b(var|std)\(dim=\(\)", lambda x: x.requires_grad),  # divided by 0 there
    (r"\bgelu\(", lambda x: bool(x.isinf().any())),  # NaN in PyTorch's vectors of 8
    # 0 x NaN among the other factors is NaN here; PyTorch counts the zeros instead.
    (r"\bprod\(", lambda x: x.requires_grad and not bool(x.isfinite().all())),
    (r"\bsign\(", _has_nan),  # it stays NaN here, as in NumPy; PyTorch's is 0
)

# ------------------------------------------------------------------- KNOWN, for now
# Delete from here to the end of the file, and `+ KNOWN` above, when these are mended.


def _grad(x: torch.Tensor) -> bool:
    return x.requires_grad


def _always(x: torch.Tensor) -> bool:
    return True


KNOWN: tuple[tuple[str, Callable[[torch.Tensor], bool]], ...] = (
    (r" % | // |remainder|floor_divide", _grad),  # drop gradients
    (r"\d % ", _always),  # a number % a tensor
    (r"masked_select", _always),  # masks that broadcast
    (r"\*\*|pow|square", _always),  # types of int ** float, bool ** n, 3 ** -2
    (r"softmax\(", lambda x: x.dim() == 0),  # of NaN and infinity
    (r"\b(bmm|mv|mm|dot)\(", _always),  # numbers of dimensions
    (r"copy_\(", _always),  # shapes with leading ones
    (r"index_select|unflatten|movedim", _always),  # of 0-d
    (r" -=? |sub_", lambda x: x.dtype is torch.bool),  # differences of bools
    (r" -=? (True|False)|(True|False) - |sub_\((True|False)", _always),  # the same
    (r"\b(any|all)\(dim=\(\)", _always),  # are no dims
    (r"\blogsumexp\(", lambda x: x.numel() == 0),
)
