"""Two facts that LLVM should know of every kernel, and copies that nobody needs.

After `install()`, before the first kernel is compiled, `for k in range(n)` becomes
a counter, and thread and block numbers are known not to be negative. (And tensor maps
are passed by value: `tensor_maps.by_value`.)

Numba writes the step of a `range` behind a test whether there is another number; LLVM
makes two selections of it, and no longer sees a loop with a known number of rounds. And
Python's `t // 32`, `t % 32` and `array[t]` mean something else for a negative t, which
costs a comparison and an addition each, although no thread has a negative number. With
both facts the inner loop of `total += a[m * K + k] * b[k * N + n]` is two loads, one
fma and two additions for the addresses; without them it was 22 instructions.

Before Numba puts a function's steps where it is called, it copies them twice, with all
names for each block of steps, though it has made them for this call alone. `inline`
does without: a quarter of the time of a compilation.

Source: "CUDA C++ Programming Guide", table of technical specifications (the limits);
"LLVM Language Reference", on range metadata.
"""

from __future__ import annotations

import copy
from functools import cache
from types import SimpleNamespace
from typing import Any

from llvmlite import ir
from numba.cuda import compiler, nvvmutils
from numba.cuda.core import inline_closurecall
from numba.cuda.cpython import rangeobj

from cuda_ops.runtime.tensor_maps import by_value

# Special registers are below these numbers.
LIMITS = {
    "tid.x": 1024,
    "tid.y": 1024,
    "tid.z": 64,
    "ntid.x": 1025,
    "ntid.y": 1025,
    "ntid.z": 65,
    "ctaid.x": 2**31 - 1,
    "ctaid.y": 65535,
    "ctaid.z": 65535,
    "nctaid.x": 2**31 - 1,
    "nctaid.y": 65536,
    "nctaid.z": 65536,
    "laneid": 32,
}

_read = nvvmutils.call_sreg
_finish = compiler.kernel_fixup
with_copies = inline_closurecall.InlineWorker.inline_function


def call_sreg(builder: Any, name: str) -> Any:
    """Read a special register, and say in which range its number lies."""
    value = _read(builder, name)
    if name in LIMITS:
        ends = [ir.Constant(ir.IntType(32), n) for n in (0, LIMITS[name])]
        value.set_metadata("range", builder.module.add_metadata(ends))
    return value


def _count(kind: Any) -> None:
    """Let ranges of one type of integers step without a test of their own."""

    @rangeobj.iterator_impl(None, kind)
    class Counter(rangeobj.make_range_iterator(kind)):  # type: ignore[misc]
        def iternext(self, context: Any, builder: Any, result: Any) -> None:
            value, count = builder.load(self.iter), builder.load(self.count)
            zero, one = count.type(0), count.type(1)
            result.set_valid(builder.icmp_signed(">", count, zero))
            result.yield_(value)
            # Behind the last number, too, where nobody asks any more.
            builder.store(builder.sub(count, one, flags=["nsw"]), self.count)
            builder.store(builder.add(value, self.step), self.iter)


def finish_kernel(kernel: Any, debug: bool) -> None:
    """Make a function a kernel, whose tensor maps are a part of its parameters."""
    _finish(kernel, debug)
    by_value(kernel)


def inline(
    worker: Any, caller: Any, block: Any, i: int, fn: Any, arg_typs: Any = None
) -> Any:
    """Put a function's steps where it is called, without a copy of them."""
    steps = worker.run_untyped_passes(fn)
    inline_closurecall.copy = SimpleNamespace(deepcopy=lambda steps: steps)
    try:
        names = fn.__code__.co_freevars
        return worker.inline_ir(caller, block, i, steps, names, arg_typs=arg_typs)
    finally:
        inline_closurecall.copy = copy


@cache
def install() -> None:
    """Take the place of Numba's own code for these, once."""
    inline_closurecall.InlineWorker.inline_function = inline
    nvvmutils.call_sreg = call_sreg
    compiler.kernel_fixup = finish_kernel
    kinds = [kind for _, kind in rangeobj.range_impl_map.values()]
    mine = [("iternext", (kind,)) for kind in kinds]
    kept = [f for f in rangeobj.registry.functions if f[1:] not in mine]
    rangeobj.registry.functions[:] = kept
    for kind in kinds:
        _count(kind)
