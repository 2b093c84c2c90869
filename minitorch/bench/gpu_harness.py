"""Take times on a GPU that can be compared.

With this file one can time two functions against each other on the device "cuda"
(`compare_on_gpu`), by the GPU's own clock. Both libraries use the same stream, and are
called in turns.

Before each call a large array is written. That empties the second-level cache, so that
inputs come from memory, as they do in a program; and while the GPU is busy with it, the
host has time to hand over the call, so that what is measured is the GPU's work and not
the host's. `compare_hosts` measures what a program waits for, by the host's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from minitorch.bench.harness import Timing

HOST_SAMPLE = 0.01  # seconds that one sample by the host's clock takes at least
FLUSHED = 2**27  # float32 elements, 512 MiB: ten times the cache, 0.1 ms of writing


def compare_on_gpu(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 30,
    seconds: float = 3.0,
) -> Timing:
    """Time the work of two functions on the GPU, in turns.

    Args:
        ours, theirs: called without arguments; compile and warm up at the first calls.
        rounds: how many samples of each are wanted.
        seconds: stop after this long (after five rounds at the earliest).
    """
    from minitorch import cuda, empty

    flushed = empty(FLUSHED, device="cuda")
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))

    def sample(fn: Callable[[], object]) -> float:
        flushed.fill_(1.0)
        start.record()
        fn()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return _in_turns(sample, ours, theirs, rounds, seconds)


def compare_hosts(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 30,
    seconds: float = 3.0,
) -> Timing:
    """Time two functions by the host's clock, in turns; arguments as above.

    A sample is many calls, one behind the other, and the wait until the GPU has done
    all of them: where the host is slower than the GPU it is the host's time, else the
    GPU's. Inputs are in the cache as far as they fit there.
    """
    from minitorch.cuda import synchronize

    def seconds_for(fn: Callable[[], object], calls: int) -> float:
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        synchronize()
        return time.perf_counter() - start

    def calls_for(fn: Callable[[], object]) -> int:
        seconds_for(fn, 3)  # compiles, captures, makes an optimizer's state
        return max(1, int(HOST_SAMPLE / seconds_for(fn, 1)))

    calls = {fn: calls_for(fn) for fn in (ours, theirs)}
    sample = lambda fn: seconds_for(fn, calls[fn]) / calls[fn]
    return _in_turns(sample, ours, theirs, rounds, seconds)


def _in_turns(
    sample: Callable[[Any], float],
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int,
    seconds: float,
) -> Timing:
    timing = Timing()
    for fn in (ours, theirs, ours, theirs):
        sample(fn)
    stop = time.perf_counter() + seconds
    while len(timing.ours) < rounds:
        timing.ours.append(sample(ours))
        timing.theirs.append(sample(theirs))
        if time.perf_counter() > stop and len(timing.ours) >= 5:
            break
    return timing
