"""Threads for kernels that outlive fork().

With this file a parallel kernel runs in a child of fork(), too: `start_threads` puts a
function of ours between kernels and the threads ("threading layer") that Numba found.

A child of fork() has one thread: its parent's others are gone. GNU OpenMP does not
notice and would wait for them for ever, so Numba ends such a child. Here the child
takes Numba's own "workqueue" instead, whose threads start anew in each process:

    parallel kernel -> parallel_for -+- in the process that began:  OpenMP or TBB
                                     +- in a child of fork():       workqueue
                                     +- while that is in use:       this thread alone

The last row is for programs with several Python threads: the workqueue serves one at a
time, and ends the program if a second one comes. All three divide the work alike, so
their results are equal to the bit.

The workqueue starts its threads when anyone first needs them, without a lock. Two
Python threads that do so at once tear its queue: the second gives out work while the
first still makes the conditions that both wait for, and waits for ever. So one alone
starts them: whoever claimed the queue, or the hook of fork() where kernels ask the
workqueue how many threads it has, before they claim it.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

from llvmlite import binding, ir
from numba.core.registry import cpu_target
from numba.np.ufunc import parallel

WORD = ir.IntType(64)
SPINS = "GOMP_SPINCOUNT"

# What the machine code below reads: whether kernels run on the workqueue, and whether
# that serves a kernel at this moment. A fork in such a moment leaves the child's queue
# half filled; the word stays 1 there, and kernels run on one thread.
_state = (ctypes.c_int64 * 2)()
QUEUE, BUSY = 0, 1


def start_threads() -> None:
    """Launch Numba's threads, unless they run, and stand between them and kernels.

    To be called before the machine code of a parallel kernel is linked.
    """
    parallel._launch_threads()
    _stand_between()


def starts_threads(load: Callable) -> Callable:
    """`load`, which links a parallel kernel, with `start_threads` before it."""

    def load_after_threads(*args: Any) -> Any:
        start_threads()
        return load(*args)

    return load_after_threads


def _after_fork() -> None:
    """In a child: leave threads that did not come along, if any had started."""
    if parallel._is_initialized and not _outlives_fork():
        _state[QUEUE] = 1
        parallel._get_num_threads()  # if that asks the workqueue, its threads start


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _outlives_fork() -> bool:
    """TBB, and the OpenMP of LLVM and Intel, start their threads anew in a child."""
    name = parallel.threading_layer()
    return name == "tbb" or (name == "omp" and _layer(name).openmp_vendor != "GNU")


def _layer(name: str) -> ModuleType:
    pool = name if name == "workqueue" else f"{name}pool"
    return importlib.import_module(f"numba.np.ufunc.{pool}")


def _spin_briefly() -> None:
    """Unless the environment says how, let threads of GNU's OpenMP that wait spin for a
    moment, and sleep then.

    By itself it lets them spin for milliseconds. Where another program has the core of
    a thread, all others wait for it so, and keep that program from its cores as well.
    """
    if not {SPINS, "OMP_WAIT_POLICY"}.isdisjoint(os.environ):
        return
    os.environ[SPINS] = "3000"  # some 10 us: as long as a loop waits for the next
    try:
        with suppress(ImportError):
            _layer("omp")  # it is read when the library is loaded
    finally:
        del os.environ[SPINS]


_spin_briefly()


# ------------------------------------------------------------------- the machine code


@cache
def _stand_between() -> Any:
    """Give kernels our two functions where they ask for Numba's; keep the result.

    A branch and a jump for each parallel loop: 1 ns.
    """
    own, queue = _layer(parallel.threading_layer()), _layer("workqueue")
    if own is queue:
        _state[QUEUE] = 1
    library = cpu_target.target_context.codegen().create_library("fast_ops.team")
    module = library.create_ir_module("fast_ops.team")
    _define_parallel_for(module, own, queue)
    _define_thread_id(module, own, queue)
    library.add_ir_module(module)
    for symbol, ours in (
        ("numba_parallel_for", "fast_ops_parallel_for"),
        ("get_thread_id", "fast_ops_thread_id"),
    ):
        binding.add_symbol(symbol, library.get_pointer_to_function(ours))
    return library


def _define_parallel_for(module: ir.Module, own: ModuleType, queue: ModuleType) -> None:
    """parallel_for(loop, args, dimensions, steps, data, ndim, count, threads):

    if not QUEUE:                          own.parallel_for(...)
    elif threads > 1 and BUSY was 0:       queue.parallel_for(...); BUSY = 0
    else:                                  loop(args, dimensions, steps, data)
    """
    name = "fast_ops_parallel_for"
    fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD] * 8), name)
    entry, usual, shared, claim, parts, alone = (
        fn.append_basic_block(block)
        for block in ("entry", "usual", "shared", "claim", "parts", "alone")
    )
    at = ir.IRBuilder(entry)
    at.cbranch(_is_set(at, QUEUE), shared, usual)
    at.position_at_end(usual)
    at.call(_at(at, own.parallel_for, fn.ftype), fn.args, tail=True)
    at.ret_void()

    at.position_at_end(shared)
    at.cbranch(at.icmp_signed(">", fn.args[7], WORD(1)), claim, alone)
    at.position_at_end(claim)
    found = at.cmpxchg(_word(BUSY), WORD(0), WORD(1), "acq_rel", "acquire")
    at.cbranch(at.extract_value(found, 1), parts, alone)
    at.position_at_end(parts)
    launch = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
    count = ir.IntType(32)(parallel.NUM_THREADS)
    at.call(_at(at, queue.launch_threads, launch), [count])  # at the first time
    at.call(_at(at, queue.parallel_for, fn.ftype), fn.args)
    at.store_atomic(WORD(0), _word(BUSY), "release", 8)
    at.ret_void()

    at.position_at_end(alone)
    loop = at.inttoptr(
        fn.args[0], ir.FunctionType(ir.VoidType(), [WORD] * 4).as_pointer()
    )
    at.call(loop, fn.args[1:5])
    at.ret_void()


def _define_thread_id(module: ir.Module, own: ModuleType, queue: ModuleType) -> None:
    """thread_id(): the number of the thread, from those who started it."""
    ask = ir.FunctionType(WORD, [])
    fn = ir.Function(module, ask, "fast_ops_thread_id")
    at = ir.IRBuilder(fn.append_basic_block("entry"))
    with at.if_then(_is_set(at, QUEUE)):
        at.ret(at.call(_at(at, queue.get_thread_id, ask), []))
    at.ret(at.call(_at(at, own.get_thread_id, ask), []))


def _word(index: int) -> ir.Constant:
    """The address of `_state[index]`."""
    address = ctypes.addressof(_state) + index * ctypes.sizeof(ctypes.c_int64)
    return WORD(address).inttoptr(WORD.as_pointer())


def _is_set(at: ir.IRBuilder, index: int) -> ir.Instruction:
    value = at.load_atomic(_word(index), "monotonic", 8)
    return at.icmp_signed("!=", value, WORD(0))


def _at(at: ir.IRBuilder, address: Any, kind: ir.FunctionType) -> ir.Instruction:
    """The function at this address."""
    value = WORD(address) if isinstance(address, int) else address
    return at.inttoptr(value, kind.as_pointer())
