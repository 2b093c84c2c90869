"""The threads of a block in the simulator: who runs, and who waits for whom.

With this file the simulator runs all threads of a block (`Block.run`) of a kernel in
which threads wait for each other. Every CUDA thread is a Python thread, but only one
runs at a time: until it comes to a place where it has to wait (a barrier, an exchange
of values within a warp) or ends. Then it hands its turn to the next one.

    thread 0   work, barrier .                      . work ...
    thread 1                 . work, barrier .      .
    thread 2                                 . work, barrier (all are here) ...

So a kernel does the same in every run, a mistake too: a missing barrier shows as a
wrong result each time, since thread 0 is far ahead of all others. A thread that waits
in a loop of its own for another one waits for ever, as it may on a GPU.

Starting a Python thread takes much longer than a turn, so threads are kept.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

Size = tuple[int, int, int]
# Bytes of a thread, of which a block may have 1,024; kernels do not call deeply.
STACK = 1 << 20


@lru_cache(maxsize=256)
def places(size: Size) -> tuple[Any, ...]:
    """The indices of all threads of a block, or of all blocks of a grid, x fastest."""
    from numba.cuda.simulator.kernelapi import Dim3

    nx, ny, nz = size
    xyz = itertools.product(range(nz), range(ny), range(nx))
    return tuple([Dim3(x, y, z) for z, y, x in xyz])


def _closed() -> Any:
    """A lock that somebody else will open, once."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Block:
    """The threads of a block that are alive, and where they wait.

    Args:
        strict: whether all threads have to come to each barrier.

    Attributes:
        round: how many barriers all have passed.
        warps: what `cuda_ops/simulator/emulation.py` knows of each warp.
        failed: the first error of a thread.
    """

    def __init__(self, size: Size, strict: bool = False) -> None:
        self._block_dim = size
        self._threads = self._alive = math.prod(size)
        self._strict = strict
        self._ready: deque[CudaThread] = deque()  # they wait for their turn only
        self._at_barrier: list[CudaThread] = []
        self._over = _closed()
        self.block_state = np.zeros(size, dtype=np.bool_)
        self.warps: dict[int, Any] = {}
        self.round = 0
        self.failed: BaseException | None = None

    def run(self, kernel: Callable, at: Any) -> None:
        """Run the kernel in all threads of the block `at`; raise a thread's error."""
        threads = [_idle.pop() if _idle else CudaThread() for _ in range(self._threads)]
        for number, index in enumerate(places(self._block_dim)):
            threads[number].become(self, kernel, at, index, number)
        self._ready.extend(threads)
        self._next()
        self._over.acquire()
        _idle.extend(reversed(threads))
        if self.failed is not None:
            raise self.failed

    def wait(self) -> None:
        """Return when all threads that are alive have come here."""
        me: Any = threading.current_thread()
        self._at_barrier.append(me)
        if len(self._at_barrier) == self._alive:
            self._open_barrier()
        self._give_turn(me)

    def meet(self, waiting: list[CudaThread], count: int) -> None:
        """Return when `count` threads have come; `waiting` has those that are here."""
        me: Any = threading.current_thread()
        waiting.append(me)
        if len(waiting) == count:
            self._wake(waiting)
        self._give_turn(me)

    def leave(self, error: BaseException | None) -> None:
        """A thread is done, or has failed."""
        self._alive -= 1
        if error is not None:
            self._fail(error)
        if self._at_barrier and len(self._at_barrier) == self._alive:
            self._open_barrier()
        self._next()

    def _open_barrier(self) -> None:
        if self._strict and self._alive < self._threads and self.failed is None:
            self.failed = RuntimeError(
                f"{self._alive} threads wait at a barrier that the other "
                f"{self._threads - self._alive} of their block never reach; keep "
                f"barriers out of branches that threads of a block take differently"
            )
        self.round += 1
        self._wake(self._at_barrier)

    def _wake(self, waiting: list[CudaThread]) -> None:
        self._ready.extend(waiting)
        waiting.clear()

    def _fail(self, error: BaseException) -> None:
        """Wake everybody, so that all threads end."""
        self.failed = self.failed or error
        for waiting in (self._at_barrier, *(w.waiting for w in self.warps.values())):
            self._wake(waiting)

    def _give_turn(self, me: CudaThread) -> None:
        """Let the next thread run, and return when it is one's own turn again."""
        self._next()
        me.turn.acquire()
        if self.failed is not None:
            raise RuntimeError("another thread of the block failed")

    def _next(self) -> None:
        if self._alive and not self._ready:
            self._fail(
                RuntimeError(
                    "a warp waits for lanes that do not come: a shuffle, vote or mma "
                    "must be reached by all threads of the warp"
                )
            )
        if self._ready:
            self._ready.popleft().turn.release()
        else:
            self._over.release()


class CudaThread(threading.Thread):
    """A Python thread that is one CUDA thread after the other.

    Numba's simulator looks here for the thread's indices and barriers.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True, name="simulated-cuda")
        self.turn = _closed()
        self._manager: Any = None
        self._kernel: Any = None
        self.blockIdx: Any = None
        self.threadIdx: Any = None
        self.thread_id = 0
        usual = threading.stack_size(STACK)
        self.start()
        threading.stack_size(usual)

    def become(
        self, block: Block, kernel: Callable, at: Any, index: Any, number: int
    ) -> None:
        """Be this thread of this block, from the next turn on."""
        self._manager, self._kernel = block, kernel
        self.blockIdx, self.threadIdx, self.thread_id = at, index, number

    def run(self) -> None:
        """Wait for the first turn, be that CUDA thread, and so on for ever."""
        while True:
            self.turn.acquire()
            error: BaseException | None = None
            block, kernel = self._manager, self._kernel
            try:
                if block.failed is None:
                    kernel()
            except BaseException as caught:  # raised again by the launching thread
                error = caught
            self._kernel = kernel = None
            block.leave(error)
            del block, error  # from here on another thread may have given new work

    def syncthreads(self) -> None:
        """Wait for all threads of the block."""
        self._manager.wait()

    def _vote(self, value: Any) -> np.ndarray:
        i: Any = self.threadIdx
        self._manager.block_state[i.x, i.y, i.z] = bool(value)
        self.syncthreads()
        votes = self._manager.block_state.copy()
        self.syncthreads()
        return votes

    def syncthreads_count(self, value: Any) -> int:
        """How many threads of the block have a true value."""
        return int(self._vote(value).sum())

    def syncthreads_and(self, value: Any) -> int:
        """Whether all threads of the block have a true value."""
        return int(self._vote(value).all())

    def syncthreads_or(self, value: Any) -> int:
        """Whether a thread of the block has a true value."""
        return int(self._vote(value).any())


_idle: list[CudaThread] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads do not live on in a child
