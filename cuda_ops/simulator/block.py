"""The threads of a block in the simulator: who runs, and who waits for whom.

With this file the simulator runs all threads of a block (`Block.run`) of a kernel in
which threads wait for each other, and code in such a kernel finds out which thread it
is (`current_thread`). Every CUDA thread is a greenlet, a function that can stop in the
middle and go on later. One runs at a time: until it comes to a place where it has to
wait (a barrier, an exchange of values within a warp) or ends. Then the next one runs.

    thread 0   work, barrier .                      . work ...
    thread 1                 . work, barrier .      .
    thread 2                                 . work, barrier (all are here) ...

So a kernel does the same in every run, a mistake too: a missing barrier shows as a
wrong result each time, since thread 0 is far ahead of all others. A thread that waits
in a loop of its own for another one waits for ever, as it may on a GPU.

With a thread of Python's for each one of CUDA's, a turn would cost 50 times as much:
the operating system would have to put one to sleep and wake another.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from greenlet import getcurrent as current_thread
from greenlet import greenlet

Size = tuple[int, int, int]


@lru_cache(maxsize=256)
def places(size: Size) -> tuple[Any, ...]:
    """The indices of all threads of a block, or of all blocks of a grid, x fastest."""
    from numba.cuda.simulator.kernelapi import Dim3

    nx, ny, nz = size
    xyz = itertools.product(range(nz), range(ny), range(nx))
    return tuple([Dim3(x, y, z) for z, y, x in xyz])


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
        self.block_state = np.zeros(size, dtype=np.bool_)
        self.warps: dict[int, Any] = {}
        self.round = 0
        self.failed: BaseException | None = None

    def run(self, kernel: Callable, at: Any) -> None:
        """Run the kernel in all threads of the block `at`; raise a thread's error."""
        indices = enumerate(places(self._block_dim))
        self._ready.extend(CudaThread(self, kernel, at, i, n) for n, i in indices)
        while self._alive:
            self._next().switch()  # comes back when one has ended, or the next begins
        if self.failed is not None:
            raise self.failed

    def wait(self) -> None:
        """Return when all threads that are alive have come here."""
        self._at_barrier.append(current_thread())
        if len(self._at_barrier) == self._alive:
            self._open_barrier()
        self._give_turn()

    def meet(self, waiting: list[CudaThread], count: int) -> None:
        """Return when `count` threads have come; `waiting` has those that are here."""
        waiting.append(current_thread())
        if len(waiting) == count:
            self._wake(waiting)
        self._give_turn()

    def leave(self, error: BaseException | None) -> None:
        """A thread is done, or has failed."""
        self._alive -= 1
        if error is not None:
            self._fail(error)
        if self._at_barrier and len(self._at_barrier) == self._alive:
            self._open_barrier()

    def _open_barrier(self) -> None:
        if self._strict and self._alive < self._threads and self.failed is None:
            self.failed = RuntimeError(
                f"{self._alive} of {self._threads} threads wait at a barrier "
                f"({_place(self._at_barrier)}) that the others never reach; keep it "
                f"out of branches that only some threads take"
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

    def _give_turn(self) -> None:
        """Let the next thread run, and return when it is one's own turn again."""
        ready, here = self._ready, current_thread()
        if not ready or not ready[0]:  # one that begins does so on the first stack
            here.parent.switch()
        elif (thread := ready.popleft()) is not here:
            thread.switch()
        if self.failed is not None:
            raise RuntimeError("another thread of the block failed")

    def _next(self) -> CudaThread:
        if not self._ready:
            here = [t for warp in self.warps.values() for t in warp.waiting]
            self._fail(
                RuntimeError(
                    f"a warp waits for lanes that do not come ({_place(here)}): a "
                    f"shuffle, vote or mma must be reached by all threads of the warp"
                )
            )
        return self._ready.popleft()


def _place(waiting: list[CudaThread]) -> str:
    """The kernel that threads are in, and the line of it where the first one waits."""
    place = "nowhere"
    if not waiting:
        return place
    frame = waiting[0].gr_frame or sys._getframe()  # who runs has no frame to go on in
    while frame is not None:  # from where it waits to where it began
        path = Path(frame.f_code.co_filename)
        if path.parent != Path(__file__).parent and "numba" not in path.parts:
            place = f"{frame.f_code.co_name}, {path.name}:{frame.f_lineno}"
        frame = frame.f_back
    return place


class CudaThread(greenlet):
    """One thread of a block, which has begun when it was switched to.

    The view of `cuda` that kernels have looks here for indices and barriers.
    """

    def __init__(
        self, block: Block, kernel: Callable, at: Any, index: Any, number: int
    ) -> None:
        super().__init__()
        self._manager, self._kernel = block, kernel
        self.blockIdx, self.threadIdx, self.thread_id = at, index, number
        self.warp: Any = None  # what `emulation.py` knows of it
        self.flights: Any = None  # what `flights.py` knows of its copies

    def run(self) -> None:
        """Be this thread, from its first turn to its end."""
        error: BaseException | None = None
        try:
            if self._manager.failed is None:
                self._kernel()
        except BaseException as caught:  # raised again by the launching thread
            error = caught
        self._manager.leave(error)

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
