"""Sums of products by the names of their dimensions, as in Einstein's convention.

With this file one can write `einsum("bhqd,bhkd->bhqk", q, k)`, and see that such a sum
over two tensors is a batch of matrix products: dimensions of both that stay are the
batch, those of one are rows or columns, and those that go are summed over.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from minitorch.arguments import checked_list, not_bool
from minitorch.functions.autocasting import in_lower
from minitorch.functions.matmul import MatMul
from minitorch.functions.movement import Slice, expand, permute, reshape
from minitorch.tensor_data import Shape

if TYPE_CHECKING:
    from minitorch.tensor import Tensor

# Dimensions behind "..." get names that no equation can contain.
HIDDEN = [chr(0x100 + i) for i in range(64)]


@in_lower
def einsum(equation: str, *operands: Any) -> Tensor:
    """The sum of products that `equation` spells: "ij,jk->ik" is a matrix product.

    Each operand has a letter for each dimension, "..." for any that are not named. A
    letter behind the arrow stays; others are summed over. Without an arrow the letters
    that occur once stay, in alphabetical order. A letter twice in one operand takes its
    diagonal. Operands are multiplied from left to right.

    Args:
        operands: tensors of one device, or one list of them.

    Errors: ValueError where equation and shapes do not fit, TypeError for bools.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    tensors = [not_bool("einsum", x) for x in checked_list("einsum", operands)]
    names, wanted = _parse(equation, tuple([x.raw.shape for x in tensors]))
    result, names_of_result = _diagonal(tensors[0], names[0])
    for i, (x, own) in enumerate(zip(tensors[1:], names[1:]), 1):
        later = {name for rest in names[i + 1 :] for name in rest} | set(wanted)
        x, own = _diagonal(x, own)
        result, names_of_result = _product(result, names_of_result, x, own, later)
    return _arranged(result, names_of_result, wanted)


@lru_cache(maxsize=1024)
def _parse(equation: str, shapes: tuple[Shape, ...]) -> tuple[list[str], str]:
    """A name for each dimension of each operand, and those of the result."""

    def refuse(why: str) -> NoReturn:
        raise ValueError(f"einsum: {why}; the equation is {equation!r}")

    terms, arrow, right = equation.replace(" ", "").partition("->")
    parts = terms.split(",")
    if len(parts) != len(shapes):
        refuse(f"it names {len(parts)} operand(s), and there are {len(shapes)}")
    for part in (*parts, right):
        if set(part.replace("...", "", 1)) - set(string.ascii_letters):
            refuse("letters, commas, '...' and one '->' are allowed")
    found, hidden, sizes = [], "", dict[str, int]()
    for part, shape in zip(parts, shapes):
        more = len(shape) - len(part.replace("...", ""))
        if more < 0 or (more and "..." not in part):
            refuse(f"{part!r} does not name the dimensions of {shape}")
        rest = "".join(HIDDEN[:more][::-1])  # counted from the last one
        found.append(part.replace("...", rest))
        hidden = max(hidden, rest, key=len)
        for name, size in zip(found[-1], shape):
            if 1 not in (size, sizes.setdefault(name, size)) and size != sizes[name]:
                refuse(
                    f"{name if name.isascii() else '...'} is {sizes[name]} and {size}"
                )
            sizes[name] = max(sizes[name], size) if size else 0
    if not arrow:
        once = sorted(n for n in set(terms) if n.isalpha() and terms.count(n) == 1)
        return found, hidden + "".join(once)
    wanted = right.replace("...", hidden)
    if len(set(wanted)) != len(wanted) or not set(wanted) <= sizes.keys():
        refuse("behind the arrow each letter stands once, and in an operand, too")
    return found, wanted


def _diagonal(x: Tensor, names: str) -> tuple[Tensor, str]:
    """Without a second dimension of one name, of which only the diagonal counts."""
    for name in set(names):
        while names.count(name) > 1:
            i = names.index(name)
            j = names.index(name, i + 1)
            order = [d for d in range(len(names)) if d not in (i, j)] + [i, j]
            x = permute(x, order)
            *rest, n, m = x.raw.shape
            if n != m:
                raise ValueError(f"einsum: the diagonal of {n} by {m} elements")
            flat = reshape(x, (*rest, n * n))
            x = Slice.apply(flat, ((len(rest), 0, n, n + 1),))
            names = "".join(names[d] for d in order[:-1])
    return x, names


def _product(
    a: Tensor, a_names: str, b: Tensor, b_names: str, later: set[str]
) -> tuple[Tensor, str]:
    """The product of two operands, summed over all names that nobody asks for later."""
    a, a_names = _summed(a, a_names, later | set(b_names))
    b, b_names = _summed(b, b_names, later | set(a_names))
    both = [n for n in a_names if n in b_names]
    batch = [n for n in both if n in later]
    inner = [n for n in both if n not in later]
    rows = [n for n in a_names if n not in b_names]
    columns = [n for n in b_names if n not in a_names]
    sizes = dict(zip(a_names, a.raw.shape))
    for name, size in zip(b_names, b.raw.shape):
        sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
    left = _grouped(a, a_names, sizes, batch, rows, inner)
    right = _grouped(b, b_names, sizes, batch, inner, columns)
    names = "".join([*batch, *rows, *columns])
    return reshape(MatMul.apply(left, right), [sizes[n] for n in names]), names


def _grouped(
    x: Tensor, names: str, sizes: dict[str, int], *groups: list[str]
) -> Tensor:
    """`x` with its dimensions in three groups, each of which becomes one."""
    order = [name for group in groups for name in group]
    x = _ordered(x, names, order)
    if x.raw.shape != (shape := tuple([sizes[name] for name in order])):
        x = expand(x, shape)
    return reshape(x, [math.prod([sizes[n] for n in group]) for group in groups])


def _summed(x: Tensor, names: str, kept: set[str]) -> tuple[Tensor, str]:
    """The sum over the dimensions whose names are not kept."""
    dims = [d for d, name in enumerate(names) if name not in kept]
    if dims:
        x = x.sum(dims, dtype=x.dtype)
    return x, "".join(name for name in names if name in kept)


def _arranged(x: Tensor, names: str, wanted: str) -> Tensor:
    x, names = _summed(x, names, set(wanted))
    return _ordered(x, names, wanted)


def _ordered(x: Tensor, names: str, wanted: Sequence[str]) -> Tensor:
    """`x`, whose dimensions have these names, with them in another order."""
    if list(names) == list(wanted):
        return x
    return permute(x, [names.index(name) for name in wanted])
