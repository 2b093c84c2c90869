"""Several elementwise functions in one kernel, made for them.

With this file a chain of `map`, `zip` and `where` (`minitorch/backend/fusion.py`) runs
as one kernel: each input is read once, all that lies between stays in registers, and
only what is needed afterwards is written. `made` writes the kernel as a Python file,
which is compiled and kept as those of this package are. A thread makes four neighbours,
as in `map_flat` of `elementwise.py`; that of a * b, then tanh, is

    @device
    def body(x0, x1):
        y0 = float32(mul_float32(x0, x1))
        y1 = float32(tanh_float32(y0))
        return y1, y1

    def loop(x0_, x1_, z1_, size, vectors):
        i = int64(cuda.grid(1)) * 4
        if vectors and i + 4 <= size:
            ...                                 loads of 16 bytes, four bodies
            store4(z1_, i, a[0], b[0], c[0], d[0])
        else:
            ...                                 one element after the other

Half types are float32 from the first function to the last, and rounded where they are
written. An array that has fewer elements than the result repeats, as in `zip_repeated`:
element i of the result meets its element i // d % m. What lies in another way is copied
first, and a number is an argument. Of a large tensor that becomes one number each block
folds its part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.block.rows import folded
from cuda_ops.elementwise import expanded, number_of, window
from cuda_ops.memory import STEP, THREADS, copy_into, empty
from cuda_ops.reduce import reduce
from cuda_ops.runtime.launch import SIMULATED, Kernel, ceil_div, device_function
from minitorch import operators
from minitorch.backend.fusion import Program, load
from minitorch.backend.host.memory import repeats
from minitorch.backend.low_precision import unrounded
from minitorch.dtypes import computed
from minitorch.tensor_data import Shape, TensorData

# How the four elements of a thread meet an input: one each, the same four of a row that
# repeats, one and the same, each on its own, or a number.
FLAT, ROW, RUN, ANY, NUMBER = "flat", "row", "run", "any", "number"


@cache
def scalar(name: str) -> Callable:
    """The function `name` of operators.py, for the type that stands behind it."""
    fn, _, kind = name.rpartition("_")
    forms = {kind: True} if kind.startswith("float") and not SIMULATED else {}
    return device_function(getattr(operators, fn), **forms)


@cache
def fold(name: str) -> Any:
    """The fold of a block's numbers with the function `name`, as `scalar` has it."""
    return folded(THREADS, scalar(name))


@lru_cache(maxsize=1024)
def made(program: Program, kinds: tuple[str, ...], outs: tuple[int, ...]) -> Kernel:
    """The kernel of `program` whose inputs lie as `kinds` say, and which writes `outs`.
    Of a fold it writes a number for each block."""
    module = load("cuda_ops.fused", text(program, kinds, outs))
    names = ",".join([step.fn.__name__ for step in program.steps])
    return Kernel(module.loop, f"fused[{names}]", threads=THREADS)


def text(program: Program, kinds: tuple[str, ...], outs: tuple[int, ...]) -> str:
    """The file of that kernel."""
    steps, inputs = program.steps, [f"x{k}" for k in range(len(kinds))]
    elements = [k for k, step in enumerate(steps) if not step.per_row]
    folds = [k for k in outs if steps[k].fold_start is not None]
    four: list[str] = []
    one: list[str] = []
    for k, kind in enumerate(kinds):
        x, parts = f"x{k}", [f"x{k}_{e}" for e in range(4)]
        if kind is NUMBER:
            four.append(f"{' = '.join(parts)} = {x}_")
            one.append(f"{x} = {x}_")
        elif kind is FLAT:
            four.append(f"{', '.join(parts)} = load4({x}_, i)")
            one.append(f"{x} = load({x}_, j)")
        else:
            one.append(f"{x} = load({x}_, {place_text(k, 'j')})")
            if kind is ROW:
                four.append(f"{', '.join(parts)} = load4({x}_, {place_text(k, 'i')})")
            elif kind is RUN:
                four.append(f"{' = '.join(parts)} = load({x}_, {place_text(k, 'i')})")
            else:
                for e, part in enumerate(parts):
                    four.append(f"{part} = load({x}_, {place_text(k, f'i + {e}')})")
    for e, name in enumerate("abcd"):
        four.append(f"{name} = body({', '.join(f'{x}_{e}' for x in inputs)})")
    one.append(f"a = body({', '.join(inputs)})")
    made = [k for k in outs if k not in folds]
    for e, k in enumerate(made):
        four.append(f"store4(z{k}_, i, a[{e}], b[{e}], c[{e}], d[{e}])")
        one.append(f"store(z{k}_, j, a[{e}])")
    begin, end = [], []
    for e, k in enumerate(folds, len(made)):
        fn = program.step_name(k)
        begin.append(f"cells{k} = cuda.shared.array(WARP, {program.step_kind(k)})")
        begin.append(f"total{k} = {program.start_text(k)}")
        for name in "abcd":
            four.append(f"total{k} = {fn}(total{k}, {name}[{e}])")
        one.append(f"total{k} = {fn}(total{k}, a[{e}])")
        end.append(f"total{k} = all_{fn}(total{k}, cuda.threadIdx.x, cells{k})")
        end.append("if cuda.threadIdx.x == 0:")
        end.append(f"    store(z{k}_, cuda.blockIdx.x, total{k})")
    places = [f"d{k}, m{k}" for k, kind in enumerate(kinds) if kind in (ROW, RUN, ANY)]
    arguments = [f"{x}_" for x in inputs] + [f"z{k}_" for k in outs] + places
    made += [steps[k].args[0] for k in folds]
    results = [f"y{k}" if k >= 0 else f"x{~k}" for k in (*made, made[0])]
    return "\n".join([
        *head_text(program, folds, __name__),
        "@device",
        f"def body({', '.join(inputs)}):",
        *(f"    {program.step_text(k)}" for k in elements),
        f"    return {', '.join(results)}",
        "",
        "",
        f"def loop({', '.join([*arguments, 'size', 'vectors'])}):",
        *(f"    {line}" for line in begin),
        "    i = int64(cuda.grid(1)) * 4",
        "    if vectors and i + 4 <= size:",
        *(f"        {line}" for line in four),
        "    else:",
        "        for j in range(i, min(i + 4, size)):",
        *(f"            {line}" for line in one),
        *(f"    {line}" for line in end),
        "",
    ])  # fmt: skip


def head_text(
    program: Program, folds: list[int], module: str, group: str = ""
) -> list[str]:
    """The beginning of a file; of folds, those of a thread's numbers and of a group's,
    which `fold` of this module makes of their names and of `group`."""
    lines = [line.replace('fold("', 'scalar("') for line in program.head_text()]
    for k in folds:
        name = program.step_name(k)
        lines.append(f'all_{name} = fold("{name.removeprefix("fold_")}"{group})')
    return [
        f'"""{len(program.steps)} functions in one kernel, made by '
        f'minitorch.compile."""',
        "",
        "import numpy as np",
        "from numba import cuda, int64, uint32",
        "",
        "from cuda_ops.block.intrinsics import "
        "WARP, device, load, load4, store, store4",
        f"from {module} import fold, scalar",
        "",
        *dict.fromkeys(lines),
        "",
        "",
    ]


def place_text(k: int, i: str) -> str:
    """Which number of input k, which repeats, element i of the result meets."""
    return f"int64(uint32(uint32({i}) // uint32(d{k})) % uint32(m{k}))"


def run(
    program: Program, shape: Shape, inputs: Sequence[TensorData],
    outs: Mapping[int, TensorData],
) -> None:  # fmt: skip
    """Run the kernel of `program`."""
    size = math.prod(shape)
    arrays: list[Any] = []
    kinds, numbers = [], []
    for given in inputs:
        t = unrounded(given)
        number = number_of(t)
        if number is not None:
            kinds.append(NUMBER)
            arrays.append(number)
            continue
        place = repeats(t.shape, t.strides, shape)
        if place is None or place[0] == size:
            kinds.append(FLAT)
            arrays.append(t.flat() if place else expanded(t, shape))
            continue
        m, d = place
        arrays.append(window(t, m))
        numbers += [d, m]
        if d % 4 == 0:
            kinds.append(RUN)
        else:
            row = d == 1 and m % 4 == 0 and is_aligned(arrays[-1])
            kinds.append(ROW if row else ANY)
    blocks = ceil_div(size, STEP)
    results, parts = {k: out.flat() for k, out in outs.items()}, {}
    read = [array for array, kind in zip(arrays, kinds) if kind is FLAT]
    for k in outs:
        if program.steps[k].fold_start is not None:
            parts[k] = empty((blocks,), computed(program.steps[k].dtype))
            results[k] = parts[k].flat()
        else:
            read.append(results[k])
    made(program, tuple(kinds), tuple(outs))[blocks, THREADS](
        *arrays, *results.values(), *numbers, size, is_aligned(*read)
    )
    for k, part in parts.items():
        fn, start = program.steps[k].fn, program.steps[k].fold_start
        total = reduce(fn, part, (0,), start or 0.0, outs[k].dtype)
        copy_into(outs[k], TensorData(total.storage, outs[k].shape))
