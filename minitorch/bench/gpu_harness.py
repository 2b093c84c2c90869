"""Take times on a GPU that can be compared.

With this file one can time two functions against each other on the device "cuda"
(`compare_on_gpu`), by the GPU's own clock. Both libraries use the same stream, and are
called in turns.

Before each call a large array is written. That empties the second-level cache, so that
inputs come from memory, as they do in a program; and while the GPU is busy with it, the
host has time to hand over the call, so that what is measured is the GPU's work and not
the host's. `compare_hosts` measures the host: calls that the GPU finishes at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from minitorch.bench.harness import Timing

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
