"""How a tensor looks when it is printed.

With this file `print(x)` reads as PyTorch's: four digits, columns aligned, large
tensors shortened in the middle, and the dtype, device or grad_fn where they are not
the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import minitorch.dtypes as dtypes
from minitorch.executor import host_read

if TYPE_CHECKING:
    from minitorch.sparse import SparseCSR
    from minitorch.tensor import Tensor

THRESHOLD = 1000
EDGE_ITEMS = 3
LINE_WIDTH = 80


def tensor_repr(x: Tensor) -> str:
    """The text for `x`, as PyTorch would print it."""
    values = _read(x)
    notes = _notes(x, values.size == 0)
    if values.size == 0:
        size = [] if values.ndim == 1 else [f"size={tuple(values.shape)}"]
        return _with_notes("tensor([]", [*size, *notes])
    return _with_notes(f"tensor({_body(values, indent=7)}", notes)


def _read(x: Tensor) -> np.ndarray:
    """The elements, half types as float32: NumPy does not know what all of them are."""
    values = host_read("repr()", x.raw)
    return values.astype(np.float32) if x.dtype.half else values


def _with_notes(text: str, notes: list[str]) -> str:
    """The notes behind the numbers, each on a new line if the last one is full."""
    used = len(text) - text.rfind("\n") + 1
    for note in notes:
        full = used + len(note) + 2 > LINE_WIDTH
        text += (",\n" + " " * 7 if full else ", ") + note
        used = 7 + len(note) if full else used + len(note) + 2
    return text + ")"


def _body(values: np.ndarray, indent: int) -> str:
    formatter = _Formatter(_shown(values), values.dtype.kind == "f")
    return _lines(values, formatter, indent, summarize=values.size > THRESHOLD)


def sparse_csr_repr(x: SparseCSR) -> str:
    """The text for a sparse matrix, as PyTorch would print it."""
    values = x.values()
    parts = [
        _named_part("crow_indices", x.crow_indices()),
        _named_part("col_indices", x.col_indices()),
        _named_part("values", values),
    ]
    text = "tensor(" + (",\n" + " " * 7).join(parts)
    notes = [f"size={tuple(x.shape)}", f"nnz={x.nnz}"]
    notes += [*_notes(values, empty=False), f"layout={x.layout!r}"]
    return _with_notes(text, notes)


def _named_part(name: str, x: Tensor) -> str:
    """One of the three lists: `values=tensor([1., 2.])`."""
    values = _read(x)
    if values.size == 0:
        return f"{name}=tensor([], size=(0,))"
    return f"{name}=tensor({_body(values, indent=len(name) + 15)})"


def _notes(x: Tensor, empty: bool) -> list[str]:
    """What is not the default: device, dtype, and the place in a graph."""
    parts = []
    if x.device != "cpu":
        parts.append(f"device='{x.device}'")
    usual = (dtypes.float32, dtypes.int64, dtypes.bool_)
    if x.dtype not in usual or (empty and x.dtype is not dtypes.float32):
        parts.append(f"dtype={x.dtype!r}")
    if x.node is not None:
        parts.append(f"grad_fn={x.node!r}")
    elif x.requires_grad:
        parts.append("requires_grad=True")
    return parts


def _shown(values: np.ndarray) -> np.ndarray:
    """The elements that will be printed, as a flat array."""
    if values.size > THRESHOLD:
        for axis in range(values.ndim):
            if values.shape[axis] > 2 * EDGE_ITEMS:
                ends = [*range(EDGE_ITEMS), *range(-EDGE_ITEMS, 0)]
                values = np.take(values, ends, axis)
    return values.reshape(-1)


class _Formatter:
    """Choose one format for all elements, and bring them to one width.

    NaN, infinities and zeros have no say in the choice; they take what room there is.
    """

    def __init__(self, shown: np.ndarray, floating: bool) -> None:
        if floating:
            shown = shown[np.isfinite(shown) & (shown != 0)]
            self.format = _float_format(np.abs(shown).astype(np.float64))
        else:
            self.format = str
        self.width = max((len(self.format(v)) for v in shown.tolist()), default=1)

    def __call__(self, value: float) -> str:
        return self.format(value).rjust(self.width)


def _float_format(sizes: np.ndarray) -> Callable[[float], str]:
    """Whole numbers as `3.`, others with four digits, wide ranges with exponents."""
    whole = bool(np.all(sizes == np.floor(sizes)))
    pattern = "{:.0f}." if whole else "{:.4f}"
    if sizes.size:
        low, high = sizes.min(), sizes.max()
        if high / low > 1000 or high > 1e8 or (not whole and low < 1e-4):
            pattern = "{:.4e}"
    return lambda v: pattern.format(v) if np.isfinite(v) else _special(v)


def _special(value: float) -> str:
    return "nan" if value != value else ("inf" if value > 0 else "-inf")


def _lines(values: np.ndarray, fmt: _Formatter, indent: int, summarize: bool) -> str:
    if values.ndim == 0:
        return fmt.format(values.item())
    cut = summarize and values.shape[0] > 2 * EDGE_ITEMS
    head = values[:EDGE_ITEMS] if cut else values
    tail = values[-EDGE_ITEMS:] if cut else values[:0]
    if values.ndim == 1:
        return _row(head.tolist(), tail.tolist(), fmt, indent, cut)
    gap = "," + "\n" * (values.ndim - 1) + " " * (indent + 1)
    parts = [_lines(v, fmt, indent + 1, summarize) for v in head]
    if cut:
        parts.append("...")
        parts += [_lines(v, fmt, indent + 1, summarize) for v in tail]
    return "[" + gap.join(parts) + "]"


def _row(head: list, tail: list, fmt: _Formatter, indent: int, cut: bool) -> str:
    words = [fmt(v) for v in head]
    words += [" ..."] if cut else []
    words += [fmt(v) for v in tail]
    per_line = max(1, (LINE_WIDTH - indent) // (fmt.width + 2))
    rows = [words[i : i + per_line] for i in range(0, len(words), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(", ".join(r) for r in rows) + "]"
