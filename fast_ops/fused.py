"""Several functions in one loop, made for them.

With this file a chain of `map`, `zip`, `where` and folds of rows
(`minitorch/backend/fusion.py`) runs as one kernel: each input is read once, what lies
between stays in registers and in the cache, and only what is needed afterwards is
written. `text` writes the loop as a Python file, which is compiled and kept as the
kernels of this package are. That of a + b, then tanh, where b is a row of numbers, is

    def loop(x0_, x1_, z1_, size, n, d1, m1):
        for line in prange((size + n - 1) // n):
            p = np.int64(line) * n
            w = min(n, size - p)
            x0s = x0_[p : p + w]
            q1 = p // d1 % m1
            x1s = x1_[q1 : q1 + n]
            z1 = z1_[p : p + w]
            for i in range(w):
                x0 = x0s[i]
                x1 = x1s[i]
                y0 = float32(add_float32(x0, x1))
                y1 = float32(tanh_float32(y0))
                z1[i] = y1

An array that has fewer elements than the result repeats: element i of the result meets
its element i // d % m, a row (d = 1), a column or a channel (d of a line or more), or
one number (m = 1). What lies in another way is copied first. Where rows are folded, a
line is a row, and there is an inner loop for each level of the program: what a later
one needs of an earlier one lies in an array as long as a row, which the cache has. A
large tensor that becomes one number is folded line by line, and the lines' folds are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from fast_ops.late import Inner
from fast_ops.launch import FASTMATH, SERIAL_LIMIT, compile_kernel
from fast_ops.memory import copy
from fast_ops.reduce import BLOCK, BLOCKS, EXACT, starts
from fast_ops.vector_math import FAST, fast_form
from fast_ops.walk import STRETCH
from minitorch import operators
from minitorch.backend.fusion import Program, load
from minitorch.backend.host.memory import CHUNK, repeats
from minitorch.operators import compilable
from minitorch.tensor_data import Shape, TensorData

SHORT = 16  # a line with fewer elements is not worth a loop of its own
FLAT, ROW, ONE = "flat", "row", "one"  # how an input lies along a line


@cache
def scalar(name: str) -> Callable:
    """The function `name` of operators.py; the type of its arguments comes behind it.

    Sums keep their order, also from one step to the next: (a + b) - a is not b.
    """
    fn = getattr(operators, name.rpartition("_")[0])
    return FAST.get(fn) or Inner(compilable(fn))


@cache
def fold(name: str) -> Callable:
    """fold(x, start): a row folded as `fold_flat` of `reduce.py` does, block by block,
    with sums of blocks in float64."""
    word, _, kind = name.rpartition("_")
    fn = fast_form(getattr(operators, word))
    wide = np.float64 if word == "add" else getattr(np, kind)

    def folded(x: Any, start: Any) -> Any:
        total = wide(start)
        for low in range(0, x.size, BLOCK):
            y = x[low : low + BLOCK]
            part = start
            for e in range(y.size):
                part = fn(part, y[e])
            total = fn(total, part)
        return total

    return Inner(folded, fastmath=FASTMATH)


@lru_cache(maxsize=1024)
def made(
    program: Program, kinds: tuple[str, ...], outs: tuple[int, ...], whole: bool
) -> Callable:
    """The kernel of `program` whose inputs lie as `kinds` say, and which writes `outs`.
    What is folded `whole` is folded line by line here."""
    loop = load("fast_ops.fused", text(program, kinds, outs, whole)).loop
    return compile_kernel(loop, (), parallel=True, fastmath=False)


# ------------------------------------------------------------------------------- text


def text(
    program: Program, kinds: tuple[str, ...], kept: tuple[int, ...], whole: bool
) -> str:
    """The file of that kernel."""
    steps = program.steps
    arrays = [f"x{k}_" for k in range(len(kinds))] + [f"z{k}_" for k in kept]
    places = [f"d{k}, m{k}" for k, kind in enumerate(kinds) if kind is not FLAT]
    lines = list(_inputs(kinds))
    # BEGIN SOLUTION a12.4
    stored = _stored(program)
    for k in sorted(stored):
        if k in kept:
            lines.append(f"z{k} = z{k}_[p : p + w]")
        else:
            lines.append(f"z{k} = np.empty(n, {program.step_kind(k)})")
    levels = program.fold_levels()
    for level in range(max(levels) + 1):
        lines += _level(program, kinds, levels, level, stored, whole)
    lines += [f"z{k}_[line] = y{k}" for k in kept if steps[k].per_row]
    head = "for line in prange((size + n - 1) // n):"
    # END SOLUTION a12.4
    return "\n".join([
        f'"""{len(steps)} functions in one loop, made by minitorch.compile."""',
        "",
        "import numpy as np",
        "from numba import prange",
        "",
        "from fast_ops.fused import fold, scalar",
        "",
        *program.head_text(),
        "",
        "",
        f"def loop({', '.join([*arrays, 'size', 'n', *places])}):",
        f"    {head}",
        "        p = np.int64(line) * n",
        "        w = min(n, size - p)",
        *(f"        {line}" for line in lines),
        "",
    ])  # fmt: skip


def _inputs(kinds: tuple[str, ...]) -> Iterator[str]:
    """The lines that find what a line meets of each input: an array for each number of
    the line, x0s, where the input is FLAT or a ROW; else one number, x0."""
    # BEGIN SOLUTION a12.5
    for k, kind in enumerate(kinds):
        if kind is FLAT:
            yield f"x{k}s = x{k}_[p : p + w]"
        elif kind is ROW:
            yield f"q{k} = p // d{k} % m{k}"
            yield f"x{k}s = x{k}_[q{k} : q{k} + n]"
        else:
            yield f"x{k} = x{k}_[p // d{k} % m{k}]"
    # END SOLUTION a12.5


def _stored(program: Program) -> set[int]:
    """Steps whose results for a line lie in memory: they are kept, folded, or needed
    at another level. What is one number a row lies in none."""
    # BEGIN SOLUTION a12.3
    levels = program.fold_levels()
    found = {k for k in program.kept if not program.steps[k].per_row}
    for step, level in zip(program.steps, levels):
        for a in step.args:
            if a >= 0 and not program.steps[a].per_row and levels[a] != level:
                found.add(a)
    return found
    # END SOLUTION a12.3


def _level(
    program: Program, kinds: tuple[str, ...], levels: list[int], level: int,
    stored: set[int], whole: bool,
) -> Iterator[str]:  # fmt: skip
    """The lines of one level: folds of the level before, what is one number a row, and
    a loop over the row. What is folded `whole` are a line's parts of folds, in their
    own type; what is one number of these comes behind the kernel."""
    # BEGIN SOLUTION a12.4
    here = [k for k, found in enumerate(levels) if found == level]
    loop: list[str] = []
    read: set[str] = set()
    for k in here:
        step = program.steps[k]
        if step.fold_start is not None:
            (a,) = step.args
            row = f"z{a}[:w]" if a >= 0 else f"x{~a}s"
            total = f"{program.step_name(k)}({row}, {program.start_text(k)})"
            yield f"y{k} = {total if whole else f'{program.step_kind(k)}({total})'}"
            continue
        if step.per_row:
            if not whole:
                yield program.step_text(k)
            continue
        for a in step.args:
            if a < 0 and kinds[~a] is not ONE:
                read.add(f"x{~a} = x{~a}s[i]")
            elif a >= 0 and levels[a] != level and not program.steps[a].per_row:
                read.add(f"y{a} = z{a}[i]")
        loop.append(program.step_text(k))
        if k in stored:
            loop.append(f"z{k}[i] = y{k}")
    if loop:
        yield "for i in range(w):"
        yield from (f"    {line}" for line in (*sorted(read), *loop))
    # END SOLUTION a12.4


# --------------------------------------------------------------------------- launcher


def pays(program: Program, shape: Shape) -> bool:
    """Whether a kernel is made: for several functions of what all threads share, and
    of rows that the cache has."""
    row = math.prod(shape[len(shape) - program.folded :])
    fits = not program.folded or SHORT <= row <= STRETCH or program.folds_whole(shape)
    return fits and len(program.steps) > 1 and math.prod(shape) >= SERIAL_LIMIT


def run(
    program: Program, shape: Shape, inputs: Sequence[TensorData],
    outs: Mapping[int, TensorData],
) -> None:  # fmt: skip
    """Run the kernel of `program`."""
    size, whole = math.prod(shape), program.folds_whole(shape)
    places = [repeats(t.shape, t.strides, shape) for t in inputs]
    n = math.prod(shape[len(shape) - program.folded :])
    if whole or not program.folded:
        n = line_of(tuple([place for place in places if place is not None]), size)
    arrays, kinds, numbers = [], [], []
    folded, of_rows = program.inputs_of(folds=True), program.inputs_of(folds=False)
    for k, (t, place) in enumerate(zip(inputs, places)):
        m, d = place or (0, 1)
        if k in of_rows:
            if m != 1 and (m == 0 or d % n):
                rows = program.row_shape(shape)
                t, m, d = copy(t.expand(rows), t.dtype), size // n, n
        elif not _lies_along(m, d, n, size) or (k in folded and d > 1):
            t, m, d = copy(t.expand(shape), t.dtype), size, 1
        if m == size:
            kinds.append(FLAT)
        else:
            kinds.append(ROW if d == 1 and m > 1 else ONE)
            numbers += [d, m]
        arrays.append(t.storage.array[t.offset : t.offset + m])
    n = n if n >= SHORT else CHUNK
    results = {k: out.flat() for k, out in outs.items()}
    parts = {}
    for k in outs if whole else ():
        step = program.steps[k]
        if step.fold_start is not None:
            start = starts(step.fold_start, step.dtype, step.fn not in EXACT)[0]
            parts[k] = start, np.empty((-(-size // n), 1), start.dtype)
            results[k] = parts[k][1][:, 0]
    kernel = made(program, tuple(kinds), tuple(outs), whole)
    kernel(*arrays, *results.values(), size, n, *numbers)
    for k, (start, part) in parts.items():
        BLOCKS[program.steps[k].fn](start, part, outs[k].flat())


def _lies_along(m: int, d: int, n: int, size: int) -> bool:
    """Whether an input, m numbers for d elements each, begins in no line anew: a line
    of n elements meets one of its numbers, or as many as it has elements, which lie
    side by side. A line shorter than `SHORT` is none, but for one number or for one a
    place."""
    # BEGIN SOLUTION a12.5
    if m in (1, size):
        return True
    return m > 0 and n >= SHORT and (m if d == 1 else d) % n == 0
    # END SOLUTION a12.5


@lru_cache(maxsize=4096)
def line_of(places: tuple[tuple[int, int], ...], size: int) -> int:
    """How many elements of the result a line has, in which no input begins anew: as
    many as can be, `CHUNK` at most.

    >>> line_of(((64, 1), (100, 64), (6400, 1)), 6400)      # a row, a column, a matrix
    64
    """
    # BEGIN SOLUTION a12.5
    n = 0  # of which all numbers are divisors
    for m, d in places:
        if 1 < m < size:
            n = math.gcd(n, m if d == 1 else d)
    if n <= CHUNK:
        return n or CHUNK
    parts = range(-(-n // CHUNK), n + 1)
    return n // next(k for k in parts if n % k == 0)
    # END SOLUTION a12.5
