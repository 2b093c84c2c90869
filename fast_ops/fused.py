"""Several elementwise functions in one loop, made for them.

With this file a chain of `map`, `zip` and `where` (`minitorch/backend/fusion.py`) runs
as one kernel: each input is read once, all that lies between stays in registers, and
only what is needed afterwards is written. `made` writes the loop as a Python file,
which is compiled and kept as the kernels of this package are. That of a + b, then tanh,
where b is a row of n numbers, is

    def loop(x0_, x1_, z1_, n, m1):
        for line in prange((z1_.size + n - 1) // n):
            p = np.int64(line) * n
            z1 = z1_[p : p + n]
            x0s = x0_[p : p + n]
            q1 = p % m1
            x1s = x1_[q1 : q1 + n]
            for i in range(z1.size):
                x0 = x0s[i]
                x1 = x1s[i]
                y0 = float32(add_float32(x0, x1))
                y1 = float32(tanh_float32(y0))
                z1[i] = y1

An array that has fewer elements than the result repeats: element i of the result meets
its element i // d % m, a row (d = 1), a column or a channel (d of a line or more), or
one number (m = 1). What lies in another way is copied first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache

from fast_ops.late import Inner
from fast_ops.launch import SERIAL_LIMIT, compile_kernel
from fast_ops.memory import copy
from fast_ops.vector_math import FAST
from minitorch import operators
from minitorch.backend.fusion import Fusion, Program, load
from minitorch.backend.host.memory import CHUNK, repeats
from minitorch.dtypes import COMPUTED
from minitorch.operators import compilable
from minitorch.tensor_data import TensorData

SHORT = 16  # a line with fewer elements is not worth a loop of its own
FLAT, ROW, ONE = "flat", "row", "one"  # how an input lies along a line


@cache
def scalar(name: str) -> Callable:
    """The function `name` of operators.py; the type of its arguments comes behind it.

    Sums keep their order, also from one step to the next: (a + b) - a is not b.
    """
    fn = getattr(operators, name.rpartition("_")[0])
    return FAST.get(fn) or Inner(compilable(fn))


@lru_cache(maxsize=1024)
def made(program: Program, kinds: tuple[str, ...]) -> Callable:
    """The kernel of `program` whose inputs lie as `kinds` say."""
    loop = load("fast_ops.fused", text(program, kinds)).loop
    return compile_kernel(loop, (), parallel=True, fastmath=False)


def text(program: Program, kinds: tuple[str, ...]) -> str:
    """The file of that kernel."""
    first = f"z{program.kept[0]}"
    places = [f"d{k}, m{k}" for k, kind in enumerate(kinds) if kind is not FLAT]
    arrays = [f"x{k}_" for k in range(len(kinds))] + [f"z{k}_" for k in program.kept]
    lines, inner = [f"z{k} = z{k}_[p : p + n]" for k in program.kept], []
    for k, kind in enumerate(kinds):
        if kind is FLAT:
            lines.append(f"x{k}s = x{k}_[p : p + n]")
        elif kind is ROW:
            lines.append(f"q{k} = p // d{k} % m{k}")
            lines.append(f"x{k}s = x{k}_[q{k} : q{k} + n]")
        else:
            lines.append(f"x{k} = x{k}_[p // d{k} % m{k}]")
        if kind is not ONE:
            inner.append(f"x{k} = x{k}s[i]")
    inner += program.lines() + [f"z{k}[i] = y{k}" for k in program.kept]
    return "\n".join([
        f'"""{len(program.steps)} elementwise functions in one loop, made by '
        'minitorch.compile."""',
        "",
        "import numpy as np",
        "from numba import prange",
        "",
        "from fast_ops.fused import scalar",
        "",
        *program.head(),
        "",
        "",
        f"def loop({', '.join([*arrays, 'n', *places])}):",
        f"    for line in prange(({first}_.size + n - 1) // n):",
        "        p = np.int64(line) * n",
        *(f"        {line}" for line in lines),
        f"        for i in range({first}.size):",
        *(f"            {line}" for line in inner),
        "",
    ])  # fmt: skip


def run(
    program: Program, inputs: Sequence[TensorData], outs: Mapping[int, TensorData]
) -> None:
    """Run the kernel of `program`."""
    shape = next(iter(outs.values())).shape
    places = [repeats(t.shape, t.strides, shape) for t in inputs]
    size = math.prod(shape)
    n = line_of(tuple([place for place in places if place is not None]), size)
    arrays, kinds, numbers = [], [], []
    for t, place in zip(inputs, places):
        if place is None or (n < SHORT and place[0] > 1):
            t, place = copy(t.expand(shape), t.dtype), (size, 1)
        m, d = place
        if m == size:
            kinds.append(FLAT)
        else:
            kinds.append(ROW if d == 1 and m > 1 else ONE)
            numbers += [d, m]
        arrays.append(t.storage.array[t.offset : t.offset + m])
    made(program, tuple(kinds))(
        *arrays, *[out.flat() for out in outs.values()],
        n if n >= SHORT else CHUNK, *numbers,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def line_of(places: tuple[tuple[int, int], ...], size: int) -> int:
    """How many elements of the result a line has, in which no input begins anew.

    >>> line_of(((64, 1), (100, 64), (6400, 1)), 6400)      # a row, a column, a matrix
    64
    """
    n = 0  # of which all numbers are divisors
    for m, d in places:
        if 1 < m < size:
            n = math.gcd(n, m if d == 1 else d)
    if n <= CHUNK:
        return n or CHUNK
    parts = range(-(-n // CHUNK), n + 1)
    return n // next(k for k in parts if n % k == 0)


class Fused(Fusion):
    """Programs as kernels of their own, for what is worth to wake all threads."""

    fused_types = frozenset(COMPUTED)

    def fused(
        self,
        program: Program,
        inputs: Sequence[TensorData],
        outs: Mapping[int, TensorData],
    ) -> None:
        """One loop, from two functions on, for tensors that all threads share."""
        size = next(iter(outs.values())).size
        if len(program.steps) < 2 or size < SERIAL_LIMIT:
            super().fused(program, inputs, outs)
        else:
            run(program, inputs, outs)
