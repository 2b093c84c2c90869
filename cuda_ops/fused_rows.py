"""Functions and folds of rows in one kernel, made for them.

With this file a program that folds rows (`minitorch/backend/fusion.py`), such as a
softmax that is written out, runs as one kernel. `text` writes it as a Python file. A
warp has a row, or a block has a long one, and goes through it once for each level of
the program:

    level 0   top = max of x[i]                 each thread its part, then all of them
    level 1   total = sum of exp(x[i] - top)
    level 2   out[i] = exp(x[i] - top) / total

What a level needs of those before it is computed again from the inputs, which the
caches have by then: arithmetic costs less than memory, and registers for a row of any
length there are none. Thread t makes the elements 4t to 4t + 3 of every `4 * GROUP`, or
one of every `GROUP` where rows do not begin at multiples of 16 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from cuda_ops.block.intrinsics import WARP, is_aligned
from cuda_ops.block.rows import BLOCK, LARGE, folded
from cuda_ops.elementwise import expanded, number_of, window
from cuda_ops.fused import NUMBER, head_text, place_text, scalar
from cuda_ops.memory import copy
from cuda_ops.runtime.launch import Kernel, ceil_div
from minitorch.backend.fusion import Program, load
from minitorch.backend.host.memory import repeats
from minitorch.backend.low_precision import unrounded
from minitorch.tensor_data import Shape, TensorData

# How an input lies along a row: a number for each element, the same ones in each row,
# one number, or anyhow.
FLAT, SAME, ONE, ANY = "flat", "same", "one", "any"
FOR_A_WARP, FOR_A_BLOCK = 1024, 8192  # the longest rows


@cache
def fold(name: str, group: int) -> Any:
    """The fold of a group's numbers with the function `name`, as `scalar` has it."""
    return folded(group, scalar(name))


@lru_cache(maxsize=1024)
def made(program: Program, kinds: tuple[str, ...], width: int, group: int) -> Kernel:
    """The kernel of `program` whose inputs lie as `kinds` say."""
    module = load("cuda_ops.fused", text(program, kinds, width, group))
    names = ",".join([step.fn.__name__ for step in program.steps])
    return Kernel(module.loop, f"fused_rows[{names}]", threads=max(group, BLOCK))


# ------------------------------------------------------------------------------- text


def text(program: Program, kinds: tuple[str, ...], width: int, group: int) -> str:
    """The file of that kernel; `width` numbers are read at once, `group` threads share
    a row."""
    steps, kept = program.steps, program.kept
    levels = program.fold_levels()
    arguments = [f"x{k}_" for k in range(len(kinds))] + [f"z{k}_" for k in kept]
    arguments += [f"d{k}, m{k}" for k, kind in enumerate(kinds) if kind in (ONE, ANY)]
    folds = [k for k, step in enumerate(steps) if step.fold_start is not None]
    lines = [
        f"cells{k} = cuda.shared.array(WARP, {program.step_kind(k)})" for k in folds
    ]
    lines += [
        f"t = cuda.threadIdx.x % {group}",
        f"line = int64(cuda.blockIdx.x) * {_per_block(group)} "
        f"+ cuda.threadIdx.x // {group}",
        "inside = line < rows",
        "p = min(line, rows - 1) * n",
    ]
    for k, kind in enumerate(kinds):
        if kind is NUMBER:
            lines.append(f"x{k} = x{k}_")
        elif kind is ONE:
            lines.append(f"x{k} = load(x{k}_, {place_text(k, 'p')})")
    bodies: list[str] = []
    for level in range(max(levels) + 1):
        body = _body(program, kinds, levels, level)
        lines += _level(program, kinds, levels, level, body, width, group)
        bodies += body.text if body else []
    lines += [
        line
        for k in kept
        if steps[k].per_row
        for line in ("if t == 0 and inside:", f"    store(z{k}_, line, y{k})")
    ]
    return "\n".join([
        *head_text(program, folds, __name__, f", {group}"),
        *bodies,
        f"def loop({', '.join([*arguments, 'rows', 'n'])}):",
        *(f"    {line}" for line in lines),
        "",
    ])  # fmt: skip


def _per_block(group: int) -> int:
    """Rows of a block."""
    return max(1, BLOCK // group)


class Body:
    """A device function that makes what one level writes and folds, for one element.

    Attributes:
        makes: the steps that it returns.
        takes: the names that it is given: inputs, and numbers of the row.
        reads: the inputs of these that are other ones for each element.
        text: the lines of the function.
    """

    def __init__(
        self, program: Program, kinds: tuple[str, ...], makes: list[int], name: str
    ) -> None:
        steps = program.steps
        wanted, takes = set(makes), set()
        for k in reversed(range(len(steps))):
            for a in steps[k].args if k in wanted else ():
                if a < 0:
                    takes.add((0, ~a))
                elif steps[a].per_row:
                    takes.add((1, a))
                else:
                    wanted.add(a)
        self.name, self.makes = name, makes
        self.takes = [f"{'xy'[row]}{k}" for row, k in sorted(takes)]
        self.reads = [
            k for row, k in sorted(takes) if not row and kinds[k] not in (ONE, NUMBER)
        ]
        self.text = [
            "@device",
            f"def {name}({', '.join(self.takes)}):",
            *(f"    {program.step_text(k)}" for k in sorted(wanted)),
            f"    return {', '.join(f'y{k}' for k in (*makes, makes[0]))}",
            "",
            "",
        ]

    def call_text(self, e: int) -> str:
        """Its call for element e of those that are read at once."""
        ours = {f"x{k}" for k in self.reads}
        args = [f"{name}_{e}" if name in ours else name for name in self.takes]
        return f"{self.name}({', '.join(args)})"


def _body(
    program: Program, kinds: tuple[str, ...], levels: list[int], level: int
) -> Body | None:
    """What makes all of a level that is written or folded; None if nothing is."""
    steps = program.steps
    makes = {k for k in program.kept if not steps[k].per_row and levels[k] == level}
    for step, found in zip(steps, levels):
        if step.fold_start is not None and found == level + 1 and step.args[0] >= 0:
            makes.add(step.args[0])
    return Body(program, kinds, sorted(makes), f"level{level}") if makes else None


def _level(
    program: Program, kinds: tuple[str, ...], levels: list[int], level: int,
    body: Body | None, width: int, group: int,
) -> Iterator[str]:  # fmt: skip
    """The lines of one level: what is one number a row, and a loop over the row."""
    steps = program.steps
    for k, step in enumerate(steps):
        if step.per_row and levels[k] == level:
            if step.fold_start is None:
                yield program.step_text(k)
            else:
                yield f"y{k} = all_{program.step_name(k)}(total{k}, t, cells{k})"
    folds = [
        k
        for k, step in enumerate(steps)
        if step.fold_start is not None and levels[k] == level + 1
    ]
    reads = sorted({
        *(body.reads if body else ()),
        *(~a for k in folds for a in steps[k].args if a < 0),
    })  # fmt: skip
    for k in folds:
        yield f"total{k} = {program.start_text(k)}"
    if not body and not folds:
        return
    yield f"for i in range(t * {width}, n, {group * width}):"
    for k in reads:
        yield from (f"    {line}" for line in _read(k, kinds[k], width))
    names = "abcd"[:width]
    if body:
        for e, name in enumerate(names):
            yield f"    {name} = {body.call_text(e)}"
        for place, k in enumerate(body.makes):
            if k in program.kept:
                values = ", ".join([f"{name}[{place}]" for name in names])
                store = "store4" if width == 4 else "store"
                yield "    if inside:"
                yield f"        {store}(z{k}_, p + i, {values})"
    for k in folds:
        (a,) = steps[k].args
        for e, name in enumerate(names):
            one = f"x{~a}_{e}" if a < 0 else f"{name}[{body.makes.index(a)}]"  # type: ignore[union-attr]
            yield f"    total{k} = {program.step_name(k)}(total{k}, {one})"


def _read(k: int, kind: str, width: int) -> list[str]:
    """The lines that read input k, for element i of the row or for four of them."""
    parts = [f"x{k}_{e}" for e in range(width)]
    if kind is ANY:
        return [
            f"{part} = load(x{k}_, {place_text(k, f'p + i + {e}')})"
            for e, part in enumerate(parts)
        ]
    place = "p + i" if kind is FLAT else "i"
    read = "load4" if width == 4 else "load"
    return [f"{', '.join(parts)} = {read}(x{k}_, {place})"]


# --------------------------------------------------------------------------- launcher


def run(
    program: Program, shape: Shape, inputs: Sequence[TensorData],
    outs: Mapping[int, TensorData],
) -> None:  # fmt: skip
    """Run the kernel of `program`."""
    size = math.prod(shape)
    n = math.prod(shape[len(shape) - program.folded :])
    arrays: list[Any] = []
    kinds, numbers = [], []
    whole, of_rows = program.inputs_of(folds=True), program.inputs_of(folds=False)
    for k, given in enumerate(inputs):
        t = unrounded(given)
        number = number_of(t)
        if number is not None and k not in whole:
            kinds.append(NUMBER)
            arrays.append(number)
            continue
        m, d = repeats(t.shape, t.strides, shape) or (0, 0)
        if k in of_rows and m != 1 and (m == 0 or d % n):
            t, m, d = copy(t.expand(program.row_shape(shape)), t.dtype), size // n, n
        if k in whole and d > 1:
            m = 0
        if m in (0, size):
            kinds.append(FLAT)
            arrays.append(t.flat() if m else expanded(t, shape))
            continue
        arrays.append(window(t, m))
        if (m, d) == (n, 1):
            kinds.append(SAME)
        else:
            kinds.append(ONE if m == 1 or d % n == 0 else ANY)
            numbers += [d, m]
    read = [array for array, kind in zip(arrays, kinds) if kind in (FLAT, SAME)]
    results = {k: out.flat() for k, out in outs.items()}
    read += [z for k, z in results.items() if not program.steps[k].per_row]
    width = 4 if n % 4 == 0 and is_aligned(*read) else 1
    group = WARP if n <= FOR_A_WARP else BLOCK if n <= FOR_A_BLOCK else LARGE
    blocks, threads = ceil_div(size // n, _per_block(group)), max(group, BLOCK)
    made(program, tuple(kinds), width, group)[blocks, threads](
        *arrays, *results.values(), *numbers, size // n, n
    )
