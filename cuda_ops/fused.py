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

    def loop(x0_, x1_, z1_, vectors):
        i = int64(cuda.grid(1)) * 4
        if vectors and i + 4 <= z1_.size:
            ...                                 loads of 16 bytes, four bodies
            store4(z1_, i, a[0], b[0], c[0], d[0])
        else:
            ...                                 one element after the other

Half types are float32 from the first function to the last, and rounded where they are
written. An array that has fewer elements than the result repeats, as in `zip_repeated`:
element i of the result meets its element i // d % m. What lies in another way is copied
first, and a number is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from cuda_ops.block.intrinsics import is_aligned
from cuda_ops.elementwise import expanded, number_of, window
from cuda_ops.memory import STEP, THREADS
from cuda_ops.runtime.launch import SIMULATED, Kernel, ceil_div, device_function
from minitorch import operators
from minitorch.backend.fusion import Program, load
from minitorch.backend.host.memory import repeats
from minitorch.backend.low_precision import unrounded
from minitorch.tensor_data import Shape, TensorData

# How the four elements of a thread meet an input: one each, the same four of a row that
# repeats, one and the same, each on its own, or a number.
FLAT, ROW, RUN, ANY, NUMBER = "flat", "row", "run", "any", "number"


@cache
def scalar(name: str) -> Callable:
    """The function `name` of operators.py, for the type that stands behind it."""
    fn, _, kind = name.rpartition("_")
    forms = {} if SIMULATED else {kind: True} if kind.startswith("float") else {}
    return device_function(getattr(operators, fn), **forms)


@lru_cache(maxsize=1024)
def made(program: Program, kinds: tuple[str, ...]) -> Kernel:
    """The kernel of `program` whose inputs lie as `kinds` say."""
    module = load("cuda_ops.fused", text(program, kinds))
    names = ",".join([step.fn.__name__ for step in program.steps])
    return Kernel(module.loop, f"fused[{names}]", threads=THREADS)


def text(program: Program, kinds: tuple[str, ...]) -> str:
    """The file of that kernel."""
    inputs = [f"x{k}" for k in range(len(kinds))]
    four: list[str] = []
    one: list[str] = []
    for x, kind in zip(inputs, kinds):
        parts = [f"{x}_{e}" for e in range(4)]
        if kind is NUMBER:
            four.append(f"{' = '.join(parts)} = {x}_")
            one.append(f"{x} = {x}_")
        elif kind is FLAT:
            four.append(f"{', '.join(parts)} = load4({x}_, i)")
            one.append(f"{x} = load({x}_, j)")
        else:
            place = f"int64(uint32(uint32({{}}) // uint32(d{x})) % uint32(m{x}))"
            one.append(f"{x} = load({x}_, {place.format('j')})")
            if kind is ROW:
                four.append(f"{', '.join(parts)} = load4({x}_, {place.format('i')})")
            elif kind is RUN:
                four.append(f"{' = '.join(parts)} = load({x}_, {place.format('i')})")
            else:
                for e, part in enumerate(parts):
                    four.append(f"{part} = load({x}_, {place.format(f'i + {e}')})")
    for e, name in enumerate("abcd"):
        four.append(f"{name} = body({', '.join(f'{x}_{e}' for x in inputs)})")
    one.append(f"a = body({', '.join(inputs)})")
    for e, k in enumerate(program.kept):
        four.append(f"store4(z{k}_, i, a[{e}], b[{e}], c[{e}], d[{e}])")
        one.append(f"store(z{k}_, j, a[{e}])")
    places = [
        f"d{x}, m{x}" for x, kind in zip(inputs, kinds) if kind in (ROW, RUN, ANY)
    ]
    size = f"z{program.kept[0]}_.size"
    arguments = [f"{x}_" for x in inputs] + [f"z{k}_" for k in program.kept] + places
    return "\n".join([
        f'"""{len(program.steps)} elementwise functions in one kernel, made by '
        'minitorch.compile."""',
        "",
        "import numpy as np",
        "from numba import cuda, int64, uint32",
        "",
        "from cuda_ops.block.intrinsics import device, load, load4, store, store4",
        "from cuda_ops.fused import scalar",
        "",
        *program.head_text(),
        "",
        "",
        "@device",
        f"def body({', '.join(inputs)}):",
        *(f"    {program.step_text(k)}" for k in range(len(program.steps))),
        f"    return {', '.join(f'y{k}' for k in (*program.kept, program.kept[0]))}",
        "",
        "",
        f"def loop({', '.join([*arguments, 'vectors'])}):",
        "    i = int64(cuda.grid(1)) * 4",
        f"    if vectors and i + 4 <= {size}:",
        *(f"        {line}" for line in four),
        "    else:",
        f"        for j in range(i, min(i + 4, {size})):",
        *(f"            {line}" for line in one),
        "",
    ])  # fmt: skip


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
    flat = [array for array, kind in zip(arrays, kinds) if kind is FLAT]
    results = [out.flat() for out in outs.values()]
    made(program, tuple(kinds))[ceil_div(size, STEP), THREADS](
        *arrays, *results, *numbers, is_aligned(*flat, *results)
    )
