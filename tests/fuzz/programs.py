"""Draw random programs: makers of tensors, operations, views, in-place changes.

With this file hypothesis writes programs as lists of lines (see `compare`). Each line
is executed with PyTorch as soon as it is drawn, so that the next one can be drawn to
fit the shapes that there are; one in a while is drawn not to fit. A line at which
PyTorch raises an error ends its program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from strategies import any_indices, basic_indices, factorings

from fuzz.compare import attempt, largest, names_for, tensors
from fuzz.differences import left_out

LONGEST = 12  # lines, without the last ones that take gradients
LARGEST = 1e4  # of the numbers that a program goes on with
MOST = 48  # elements of a tensor
RARELY = 80  # one line in so many is drawn not to fit

FLOATS = ("float32", "float64")
DTYPES = ("float32", "float64", "int64", "int32", "bool")
NUMBERS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -1.5, 0.25, -3.0)
VALUES = {
    "float32": st.sampled_from(NUMBERS * 4 + (math.nan, math.inf, -math.inf, -0.0)),
    "float64": st.sampled_from(NUMBERS),
    "int64": st.integers(-3, 4),
    "int32": st.integers(-3, 4),
    "bool": st.booleans(),
}
SIZES = st.sampled_from((1, 2, 3, 2, 3, 4, 0))
SHAPES = st.lists(SIZES, max_size=3).map(tuple)


class Writer:
    """A program that is being written, and the tensors that it has made so far."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.names = names_for(torch)
        self.ended = False

    # ------------------------------------------------------------------- choices

    def pick(self, options: Sequence[Any]) -> Any:
        """One of `options`; the first is the simplest."""
        return self.draw(st.sampled_from(options))

    def rarely(self, times: int = RARELY) -> bool:
        """True once in so many times."""
        return self.draw(st.integers(0, times - 1)) == times - 1

    def tensor(self, fits: Callable[[torch.Tensor], bool] = lambda x: True) -> str:
        """The name of a tensor that fits; StopIteration where there is none."""
        found = [n for n, x in tensors(self.names).items() if fits(x)]
        if not found:
            raise NothingFits
        return self.pick(found[::-1])

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.names[name]

    def dim(self, x: str, extra: int = 0) -> int:
        """A dimension of x; rarely one that it has not."""
        dims = max(self[x].dim() + extra, 1)
        return dims if self.rarely() else self.pick(range(-dims, dims))

    def dims(self, x: str) -> tuple[int, ...]:
        """Some dimensions of x, each once."""
        order = self.draw(st.permutations(range(self[x].dim())))
        return tuple(order[: self.draw(st.integers(0, len(order)))])

    def literal(self, shape: tuple[int, ...], dtype: str) -> str:
        """`torch.tensor(...)` with new numbers."""
        count = math.prod(shape)
        numbers = self.draw(st.lists(VALUES[dtype], min_size=count, max_size=count))
        return literal(np.array(numbers, dtype).reshape(shape))

    def operand(self, x: str) -> str:
        """What x goes together with: a number, or a tensor that broadcasts with it."""
        kind = self.pick(("tensor", "tensor", "number", "new", "any"))
        if kind == "number":
            return repr(self.pick((2, 0.5, -1.5, 1, True, 0)))
        if kind == "new":
            shape = tuple(self.pick((n, 1)) for n in self[x].shape)
            return self.literal(
                shape[self.draw(st.integers(0, len(shape))) :], "float32"
            )
        if kind == "any" and self.rarely():
            return self.tensor()
        return self.tensor(lambda y: broadcasts(self[x].shape, y.shape))

    def like(self, x: str) -> str:
        """What can be written into x: a number, or what expands to its shape."""
        old = self[x]
        if self.rarely():
            return self.tensor()
        if self.pick((True, False, False)):
            return repr(
                self.pick(
                    (True, False)
                    if old.dtype is torch.bool
                    else NUMBERS[:5]
                    if floating(old)
                    else (2, -1, 3, 0)
                )
            )
        return self.tensor(
            lambda y: (
                broadcasts(old.shape, y.shape, onto=True)
                and torch.can_cast(y.dtype, old.dtype)
                and (y is old or not same_memory(y, old))
            )
        )

    # ------------------------------------------------------------------- writing

    def write(self, line: str) -> bool:
        """Execute a line with PyTorch and keep it; whether it was kept."""
        words = set(re.findall(r"\w+", line))
        made_so_far = tensors(self.names)
        if left_out(line, [x for n, x in made_so_far.items() if n in words]):
            return False
        before = dict(self.names)
        error = attempt(line, self.names)
        target = line.partition(" = ")[0]
        made = self.names.get(target) if target.isidentifier() else None
        if isinstance(made, torch.Tensor) and made is not before.get(target):
            if made.numel() > MOST or too_large(made):
                self.names = before
                return False
            if not made.is_contiguous() and not shares(made, before):
                # Results lie row by row here, and as their operands do in PyTorch,
                # where a reshape may then have to copy: the copy is made at once.
                self.names = before
                name, _, expression = line.partition(" = ")
                line = f"{name} = ({expression}).contiguous().clone()"
                error = attempt(line, self.names)
        self.lines.append(line)
        self.ended = error is not None or any(
            too_large(x) for x in tensors(self.names).values()
        )
        return True

    def assign(self, expression: str) -> bool:
        """Give the value of an expression the next free name."""
        taken = set(tensors(self.names))
        return self.write(f"{next(c for c in NAMES if c not in taken)} = {expression}")


NAMES = [c for c in ascii_lowercase if c not in "ln"] + [f"x{i}" for i in range(50)]


class NothingFits(Exception):
    """There is no tensor on which the chosen kind of line could work."""


def literal(array: np.ndarray) -> str:
    """The expression that makes a tensor of an array."""
    if array.size == 0:
        return f"torch.zeros({array.shape}, dtype=torch.{array.dtype})"
    plain = array.dtype in (np.dtype("float32"), np.dtype("int64"), np.dtype("bool"))
    dtype = "" if plain else f", dtype=torch.{array.dtype}"
    return f"torch.tensor({array.tolist()}{dtype})"


def too_large(x: torch.Tensor) -> bool:
    """Whether finite numbers are so large that rounding hides all else."""
    return x.dtype is not torch.bool and largest(x) > LARGEST


def alone(x: torch.Tensor, names: dict[str, Any]) -> bool:
    """Whether no other tensor is in the memory of x."""
    return not shares(x, {n: y for n, y in names.items() if y is not x})


def shares(x: torch.Tensor, names: dict[str, Any]) -> bool:
    """Whether x is in the memory of another tensor."""
    return any(same_memory(x, y) for y in tensors(names).values())


def same_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether both are windows of one memory."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def broadcasts(a: Sequence[int], b: Sequence[int], onto: bool = False) -> bool:
    """Whether two shapes broadcast (to a itself, if `onto`)."""
    if onto and len(b) > len(a):
        return False
    return all(
        n == m or m == 1 or (n == 1 and not onto)
        for n, m in zip(reversed(a), reversed(b))
    )


def index_text(items: tuple[Any, ...]) -> str:
    """What stands between the brackets."""
    return ", ".join(map(_index_item, items)) or "..."


def _index_item(item: Any) -> str:
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        step = None if item.step is None else min(item.step, 5)
        parts = (item.start, item.stop, step)
        text = ":".join("" if p is None else str(p) for p in parts)
        return text if item.step is not None else text[:-1]
    return literal(item) if isinstance(item, np.ndarray) else repr(item)


def floating(x: torch.Tensor) -> bool:
    return x.is_floating_point()


def differentiable(x: torch.Tensor) -> bool:
    return x.requires_grad


# --------------------------------------------------------------- kinds of lines
# Each writes one line, or an expression for one.


def make(w: Writer) -> str:
    """A new tensor, in half of all cases a leaf that requires a gradient."""
    dtype = w.pick((*FLOATS, *FLOATS, *DTYPES))
    shape = w.draw(SHAPES)
    text = w.literal(shape, dtype)
    if len(shape) == 2 and w.pick((False, False, True)):
        text += ".t()"
    if dtype in FLOATS and w.pick((True, False)):
        text += ".requires_grad_()"
    return text


UNARY = (
    "neg abs sign floor ceil round exp expm1 log log1p sqrt rsqrt reciprocal square sin"
    " cos tanh erf sigmoid relu logical_not isnan isinf isfinite clone"
).split()
ACTIVATIONS = "gelu silu elu leaky_relu softplus".split()


def unary(w: Writer) -> str:
    x = w.tensor()
    name = w.pick([*UNARY, *ACTIVATIONS])
    if name in ACTIVATIONS:
        x = w.tensor(floating)
        return f"torch.nn.functional.{name}({x})"
    return w.pick((f"{x}.{name}()", f"torch.{name}({x})"))


OPERATORS = "+ - * / ** % // < <= > >= == !=".split()
BINARY = "maximum minimum logical_and logical_or logical_xor".split()


def binary(w: Writer) -> str:
    x = w.tensor()
    name = w.pick(OPERATORS[:4] * 4 + OPERATORS + BINARY)
    if name == "-" and w[x].dtype is torch.bool and not w.rarely():
        raise NothingFits
    if name in BINARY:
        return f"torch.{name}({x}, {w.tensor(_broadcasts_with(w, x))})"
    y = w.operand(x)
    return f"{y} {name} {x}" if w.pick((False, False, True)) else f"{x} {name} {y}"


def _broadcasts_with(w: Writer, x: str) -> Callable[[torch.Tensor], bool]:
    return lambda y: broadcasts(w[x].shape, y.shape)


def logical(w: Writer) -> str:
    x = w.tensor(lambda x: x.dtype is torch.bool)
    if w.pick((False, True)):
        return f"~{x}"
    y = w.tensor(lambda y: y.dtype is torch.bool and broadcasts(w[x].shape, y.shape))
    return f"{x} {w.pick('&|^')} {y}"


FLOATING_FOLDS = "mean norm var std".split()
FOLDS = [*"sum amax amin any all logsumexp".split(), *FLOATING_FOLDS]
FOLDS_OF_ONE = "prod argmax argmin".split()


def fold(w: Writer) -> str:
    """A reduction over no, one or several dims."""
    name = w.pick(FOLDS + FOLDS_OF_ONE)
    x = w.tensor(floating if name in FLOATING_FOLDS or w.rarely(4) else any_of)
    how = w.pick(("all", "one", "one", "several"))
    if how == "all" and name != "logsumexp":
        return f"{x}.{name}()"
    if how == "several" and name in FOLDS:
        dim: Any = w.dims(x)
    else:
        dim = w.dim(x)
    keep = ", keepdim=True" if w.pick((False, True)) else ""
    return f"{x}.{name}(dim={dim}{keep})"


def any_of(x: torch.Tensor) -> bool:
    return True


def along(w: Writer) -> str:
    """An operation along one dim: scans, sorts, softmax."""
    name = w.pick("cumsum softmax log_softmax max min sort topk argsort".split())
    x = w.tensor(floating if "softmax" in name else any_of)
    dim = w.dim(x)
    ties = w[x].unique().numel() < w[x].numel()
    if ties and (name == "topk" or ("sort" in name and w[x].numel() > 16)):
        raise NothingFits  # PyTorch does not say which of two equal elements is first
    if name in ("max", "min", "sort"):
        return f"{x}.{name}({dim})[{w.pick((0, 1))}]"
    if name == "topk":
        size = w[x].shape[dim] if w[x].dim() and -w[x].dim() <= dim < w[x].dim() else 1
        k = w.draw(st.integers(0, size))
        return f"{x}.topk({k}, {dim})[{w.pick((0, 1))}]"
    return f"{x}.{name}({dim})"


def shaped(w: Writer) -> str:
    """The same elements in another shape."""
    x = w.tensor()
    kind = w.pick(
        "reshape view flatten unflatten squeeze unsqueeze ravel view_as".split()
    )
    if kind in ("reshape", "view"):
        shape = list(w.draw(factorings(w[x].numel())))
        if shape and w.pick((False, True)):
            shape[w.draw(st.integers(0, len(shape) - 1))] = -1
        return f"{x}.{kind}({tuple(shape)})"
    if kind == "view_as":
        count = w[x].numel()
        return f"{x}.view_as({w.tensor(lambda y: y.numel() == count)})"
    if kind == "flatten":
        return f"{x}.flatten({w.dim(x)}, {w.dim(x)})"
    if kind == "unflatten":
        dim = w.dim(x)
        size = w[x].shape[dim] if -w[x].dim() <= dim < w[x].dim() else 1
        return f"{x}.unflatten({dim}, {w.draw(factorings(size)) or (1,)})"
    if kind == "squeeze":
        return w.pick((f"{x}.squeeze()", f"{x}.squeeze({w.dim(x)})"))
    if kind == "unsqueeze":
        return f"{x}.unsqueeze({w.dim(x, 1)})"
    return f"{x}.{kind}()"


def turned(w: Writer) -> str:
    """Dimensions in another order, elements in another order."""
    x = w.tensor()
    kind = w.pick("transpose permute t T mT movedim flip".split())
    if kind in ("transpose", "movedim"):
        return f"{x}.{kind}({w.dim(x)}, {w.dim(x)})"
    if kind == "permute":
        return f"{x}.permute({tuple(w.draw(st.permutations(range(w[x].dim()))))})"
    if kind == "flip":
        return f"{x}.flip({w.dims(x)})"
    if kind == "T":
        return f"{w.tensor(lambda y: y.dim() == 2)}.T"
    return f"{x}.mT" if kind == "mT" else f"{x}.t()"


def widened(w: Writer) -> str:
    """More elements: expand, repeat, pad, and others put beside these."""
    x = w.tensor()
    kind = w.pick("expand repeat pad cat stack tril triu".split())
    if kind == "expand":
        shape = [w.pick((n, 2, 3)) if n == 1 else w.pick((n, -1)) for n in w[x].shape]
        return f"{x}.expand({tuple([2] * w.pick((0, 0, 1)) + shape)})"
    if kind == "repeat":
        return f"{x}.repeat({tuple(w.pick((1, 2)) for _ in w[x].shape)})"
    if kind == "pad":
        pad = tuple(w.pick((0, 1, -1)) for _ in range(2 * min(w[x].dim(), 2)))
        value = w.pick((0, 1))
        return f"torch.nn.functional.pad({x}, {pad}, value={value})"
    if kind in ("cat", "stack"):
        shape = w[x].shape
        y = w.tensor(lambda y: y.shape == shape)
        return f"torch.{kind}([{x}, {y}], {w.dim(x, int(kind == 'stack'))})"
    if w[x].dim() < 2 and not w.rarely():
        raise NothingFits
    return f"{x}.{kind}({w.pick((0, 1, -1))})"


def part(w: Writer) -> str:
    """Some of the elements: a view where that is possible."""
    x = w.tensor(lambda x: x.dim() > 0)
    kind = w.pick("[] [] [] [] any any narrow select split chunk unbind".split())
    shape = tuple(w[x].shape)
    if kind == "[]":
        return f"{x}[{index_text(w.draw(basic_indices(shape)))}]"
    if kind == "any":
        return f"{x}[{index_text(w.draw(any_indices(shape)))}]"
    dim = w.dim(x)
    size = shape[dim] if -len(shape) <= dim < len(shape) else 1
    if kind == "narrow":
        start = w.draw(st.integers(0, size))
        return f"{x}.narrow({dim}, {start}, {w.draw(st.integers(0, size - start))})"
    if kind == "select":
        return f"{x}.select({dim}, {w.draw(st.integers(-size, max(size - 1, 0)))})"
    # Where there are gradients PyTorch lets nobody change these views, or their base.
    copy = ".clone()" if floating(w[x]) else ""
    count = "" if kind == "unbind" else w.pick(("1, ", "2, "))
    return f"{x}.{kind}({count}{dim})[{w.pick((0, -1))}]{copy}"


def chosen(w: Writer) -> str:
    """Elements chosen by a mask or by positions."""
    kind = w.pick("where masked_fill masked_select gather scatter_add index_select"
                  " nonzero clamp".split())  # fmt: skip
    x = w.tensor()
    shape = tuple(w[x].shape)
    if kind == "nonzero":
        return f"{x}.nonzero()"
    if kind == "clamp":
        return f"{x}.clamp({w.pick(('0', '-1', '0.5', 'max=1', '-1, 1'))})"
    if kind in ("gather", "scatter_add", "index_select"):
        return _by_position(w, kind, x)
    mask = w.tensor(
        lambda m: m.dtype is torch.bool and broadcasts(shape, m.shape, onto=True)
    )
    if kind == "where":
        return f"torch.where({mask}, {x}, {w.operand(x)})"
    if kind == "masked_fill":
        return f"{x}.masked_fill({mask}, {w.pick((0, 2, 0.5))})"
    return f"{x}.masked_select({mask})"


def _by_position(w: Writer, kind: str, x: str) -> str:
    dim, shape = w.dim(x), tuple(w[x].shape)
    size = shape[dim] if -len(shape) <= dim < len(shape) else 1
    if kind == "index_select":
        length: tuple[int, ...] = (w.draw(st.integers(0, 3)),)
    else:
        length = tuple(w.draw(st.integers(0, n)) for n in shape)
    count = math.prod(length) if size else 0
    places = st.integers(0, max(size - 1, 0))
    index = np.array(w.draw(st.lists(places, min_size=count, max_size=count)), np.int64)
    text = literal(index.reshape(length) if count else np.zeros(length, np.int64))
    if kind == "scatter_add":
        dtype = w[x].dtype
        source = w.tensor(lambda y: tuple(y.shape) == shape and y.dtype is dtype)
        return f"{x}.scatter_add({dim}, {text}, {source})"
    return f"{x}.{kind}({dim}, {text})"


def product(w: Writer) -> str:
    """A matrix product."""
    x = w.tensor(lambda x: x.dim() > 0 and x.dtype is not torch.bool)
    inner, dtype = w[x].shape[-1], w[x].dtype

    def fits(y: torch.Tensor) -> bool:
        if y.dim() == 0 or y.dtype is not dtype:
            return False
        side = y.shape[-2] if y.dim() > 1 else y.shape[0]
        return side == inner and broadcasts(w[x].shape[:-2], y.shape[:-2])

    y = w.tensor(fits)
    if w[x].dim() == 2 and w.pick((False, True)):
        return f"torch.{'mm' if w[y].dim() == 2 else 'mv'}({x}, {y})"
    return w.pick((f"{x} @ {y}", f"torch.matmul({x}, {y})"))


def converted(w: Writer) -> str:
    """Another dtype."""
    x = w.tensor()
    fits = floating if not bool(w[x].isfinite().all()) else any_of
    methods = "float double long int bool".split() if fits is any_of else ["double"]
    return w.pick((f"{x}.{w.pick(methods)}()", f"{x}.to(torch.{w.pick(FLOATS)})"))


def detached(w: Writer) -> str:
    """The same memory, with another place in the graph."""
    x = w.tensor()
    return w.pick((f"{x}.detach()", f"{x}.contiguous()", f"{x}.detach().clone()"))


EXPRESSIONS = (
    (make, 2), (unary, 3), (binary, 6), (logical, 1), (fold, 3), (along, 2),
    (shaped, 4), (turned, 4), (widened, 3), (part, 6), (chosen, 3), (product, 2),
    (converted, 2), (detached, 1),
)  # fmt: skip


def changed(w: Writer) -> str:
    """A change in place, of a tensor or of a part of it."""
    unfit = w.rarely(20)
    x = w.tensor(lambda x: unfit or not fixed(x))
    kind = w.pick(
        "op op op iop [] [] any fill_ zero_ clamp_ masked_fill_ copy_".split()
    )
    if kind == "op":
        return f"{x}.{w.pick(('add_', 'mul_', 'sub_', 'div_'))}({w.like(x)})"
    if kind == "iop":
        return f"{x} {w.pick('+-*/')}= {w.like(x)}"
    if kind in ("[]", "any"):
        return _assigned(w, x, kind)
    if kind == "masked_fill_":
        shape = w[x].shape
        mask = w.tensor(
            lambda m: m.dtype is torch.bool and broadcasts(shape, m.shape, onto=True)
        )
        return f"{x}.masked_fill_({mask}, {w.pick((0, 2))})"
    argument = {
        "fill_": lambda: w.pick((2, 0.5)),
        "zero_": lambda: "",
        "clamp_": lambda: w.pick(("0", "-1, 1", "max=1")),
        "copy_": lambda: w.like(x),
    }[kind]()
    return f"{x}.{kind}({argument})"


def fixed(x: torch.Tensor) -> bool:
    """Whether x must not be changed: a leaf with a gradient, or a view of one."""
    return x.requires_grad and (x.is_leaf or (x._base is not None and x._base.is_leaf))


def _assigned(w: Writer, x: str, kind: str) -> str:
    """x[...] = value, or x[...] += value"""
    shape = tuple(w[x].shape)
    if kind == "any" and shape:
        items = w.draw(any_indices(shape))
    else:
        items = w.draw(basic_indices(shape))
    index = index_text(items)
    try:
        target = eval(f"x[{index}]", {"x": w[x].detach(), "torch": torch}).shape
    except (IndexError, RuntimeError):
        raise NothingFits from None
    value = repr(w.pick((2, 0, -1)))
    unique = kind == "[]" or _unique(w[x], index)
    how = w.pick(("=", "=", "+=", "*=")) if w[x].dtype is not torch.bool else "="
    if w.pick((True, True, False)):
        old = w[x]
        value = w.tensor(
            lambda y: (
                broadcasts(target, y.shape, onto=True)
                and (unique or not y.dim())
                and not same_memory(old, y)
                and (how == "=" or torch.can_cast(y.dtype, old.dtype))
                and (floating(old) or not y.requires_grad)
            )
        )
    return f"{x}[{index}] {how} {value}"


def _unique(x: torch.Tensor, index: str) -> bool:
    """Whether an index names no element twice."""
    places = torch.arange(x.numel()).reshape(x.shape)
    taken = eval(f"x[{index}]", {"x": places, "torch": torch})
    return taken.unique().numel() == taken.numel()


def quietly_changed(w: Writer) -> str:
    """A change in place that is not recorded."""
    return f"with torch.no_grad(): {changed(w)}"


def backward(w: Writer) -> str:
    """Gradients of all leaves, from a gradient that depends on the place."""
    x = w.tensor(differentiable)
    shape, count = tuple(w[x].shape), w[x].numel()
    dtype = "" if w[x].dtype is torch.float32 else f", dtype={w[x].dtype}"
    start = f"torch.arange(1.0, {count + 1.0}{dtype}).reshape({shape})"
    keep = ", retain_graph=True" if w.pick((True, True, False)) else ""
    if not shape and w.pick((True, False)):
        start, keep = "", keep[2:]
    return f"{x}.backward({start}{keep})"


def gradient(w: Writer) -> str:
    """A gradient as a tensor of its own, which may be differentiated again."""
    x, y = w.tensor(differentiable), w.tensor(differentiable)
    create = ", create_graph=True" if w.pick((False, True)) else ", retain_graph=True"
    loss = w.pick((f"{x}.sum()", f"({x} * {x}).sum()"))
    return f"torch.autograd.grad({loss}, {y}{create}, allow_unused=True)[0]"


def leaf(w: Writer) -> str:
    """What is said to or about one tensor."""
    # A view of a leaf that is told to require a gradient later has one in PyTorch, too,
    # but no place in the graph.
    x = w.tensor(lambda x: floating(x) and (x.requires_grad or alone(x, w.names)))
    has_grad = w[x].is_leaf and w[x].grad is not None
    if has_grad and w.pick((True, False)):
        return f"{x}.grad.zero_()" if w.pick((True, False)) else f"{x}.grad = None"
    if w[x].requires_grad and not w[x].is_leaf:
        return f"{x}.retain_grad()"
    return f"{x}.requires_grad_()"


STATEMENTS = (
    (changed, 12), (quietly_changed, 3), (backward, 2), (leaf, 2),
)  # fmt: skip


def _weighted(table: Sequence[tuple[Callable, int]]) -> list[Callable]:
    return [kind for kind, weight in table for _ in range(weight)]


KINDS = _weighted(EXPRESSIONS) + _weighted(STATEMENTS) + [gradient]
IS_STATEMENT = frozenset(kind for kind, _ in STATEMENTS)


@st.composite
def programs(draw: Any) -> list[str]:
    """The lines of a program."""
    w = Writer(draw)
    for _ in range(draw(st.integers(1, 3))):
        w.assign(make(w))
    wanted = w.pick(range(LONGEST, 4, -1))  # the test itself takes lines out, too
    for _ in range(2 * wanted):
        if w.ended or len(w.lines) >= wanted:
            break
        kind = w.pick(KINDS)
        try:
            text = kind(w)
        except NothingFits:
            continue
        w.write(text) if kind in IS_STATEMENT else w.assign(text)
    for _ in range(2):
        if not w.ended and any(map(differentiable, tensors(w.names).values())):
            w.write(backward(w))
    return w.lines
