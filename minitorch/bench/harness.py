"""Take times that can be compared: in turns, and only while nobody disturbs.

With this file one can time two functions against each other (`compare`). On a shared
machine a time by itself means little, a ratio of medians more: the two are called in
turns, so that what slows one slows the other. A fixed piece of work is timed around
each round; where it took much longer than usual, something else had the processor,
and the round is thrown away.

The two libraries bring a pool of threads each, and a pool that has just worked waits
for more by spinning, on the cores that the other one needs. So before each sample there
is a pause in which the pool of the side before falls asleep, and calls that are not
timed, which wake the pool of the side that is next.

`OMP_WAIT_POLICY=passive` would let both pools sleep at once. It is left to whoever
starts the benchmark, and the table's head says what it was: with the pauses, ratios are
no steadier with it, while each call of either side takes 10 to 20 us longer, which
draws the ratios of short operations towards 1. Nobody's program runs like that unless
it asks to.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from minitorch.machine import usable_cores

SAMPLE_SECONDS = 0.004  # one sample repeats a short operation for at least this long
PAUSE = 0.015  # libgomp's threads spin 300,000 times before they sleep: 1 to 10 ms
WAKE_SECONDS = 0.001  # calls before each sample, to wake threads and to fill caches
DISTURBED = 1.25  # the reference work took this much longer than its median


@dataclass
class Timing:
    """The times of two functions, in seconds a call, round by round."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    discarded: int = 0

    @property
    def our_median(self) -> float:
        return statistics.median(self.ours)

    @property
    def their_median(self) -> float:
        return statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        """Our time over theirs: below 1 we are faster."""
        return self.our_median / self.their_median


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 15,
    seconds: float = 3.0,
) -> Timing:
    """Time the two in turns.

    Args:
        ours, theirs: called without arguments; compile and warm up at the first calls.
        rounds: how many undisturbed samples of each are wanted.
        seconds: stop after this long (after five rounds at the earliest).
    """
    repeats = [_repeats(fn) for fn in (ours, theirs)]
    timing = Timing()
    samples: list[tuple[float, float, float]] = []
    end = time.perf_counter() + seconds
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        while len(samples) < rounds or _undisturbed(samples) < min(rounds, 5):
            before = _reference()
            a = _sample(ours, repeats[0])
            b = _sample(theirs, repeats[1])
            samples.append((a, b, max(before, _reference())))
            if time.perf_counter() > end and len(samples) >= 5:
                break
    finally:
        if gc_was_on:
            gc.enable()
    usual = statistics.median(s[2] for s in samples)
    kept = [s for s in samples if s[2] <= DISTURBED * usual]
    timing.ours = [s[0] for s in kept]
    timing.theirs = [s[1] for s in kept]
    timing.discarded = len(samples) - len(kept)
    return timing


def _undisturbed(samples: list[tuple[float, float, float]]) -> int:
    usual = statistics.median(s[2] for s in samples)
    return sum(s[2] <= DISTURBED * usual for s in samples)


def _repeats(fn: Callable[[], object]) -> int:
    """How often to call `fn` for one sample."""
    time.sleep(PAUSE)
    fn()
    fn()
    start = time.perf_counter()
    fn()
    once = max(time.perf_counter() - start, 1e-7)
    return max(1, int(SAMPLE_SECONDS / once))


def _sample(fn: Callable[[], object], repeats: int) -> float:
    time.sleep(PAUSE)
    awake = time.perf_counter() + WAKE_SECONDS
    fn()
    while time.perf_counter() < awake:
        fn()
    start = time.perf_counter()
    for _ in range(repeats):
        fn()
    return (time.perf_counter() - start) / repeats


def _reference() -> float:
    """The time of a fixed piece of work on one core."""
    start = time.perf_counter()
    sum(range(10_000))
    return time.perf_counter() - start


def busy_notice(threads: int) -> str | None:
    """A sentence about other work on this machine, if there is any."""
    cores = usable_cores()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if threads > cores:
        return (
            f"{threads} threads on {cores} cores: times will be bad and uneven; use "
            f"--threads {cores}"
        )
    if load + threads > cores + 0.5:
        return (
            f"other work keeps {load:.1f} of {cores} cores busy; trust only the "
            f"ratios, and those not much"
        )
    return None
