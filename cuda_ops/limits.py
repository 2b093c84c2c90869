"""What this GPU can do at most, measured.

With this file a benchmark can say which share of the limit a kernel reaches:
`peak_flops()` multiplies and adds in registers alone, and `bandwidth()` copies arrays
that no cache holds. Both are the best of several runs, since a limit is what can be
reached. Times are the GPU's own, from events.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda, float32

from cuda_ops.memory import copy, empty
from cuda_ops.runtime import device
from cuda_ops.runtime.launch import kernel
from minitorch.dtypes import float32 as f32

THREADS = 256
# For each multiprocessor.
BLOCKS = 8
# Of 64 multiply-adds.
ROUNDS = 512


@kernel(examples=["float32[] float32 float32 int64"], threads=THREADS)
def multiply_add(out, factor, summand, rounds):
    """out[i] = a chain of x * factor + summand, eight of them side by side.

        for round, 8 times, c:  x[c] = x[c] * factor + summand

    A multiply-add takes 4 cycles until its result can be used, and a multiprocessor
    starts one in each cycle in each of its 128 lanes: eight chains a thread, and eight
    warps in each quarter, leave no cycle empty. Nothing is read; the one write keeps
    the compiler from leaving it all out.
    """
    i = cuda.grid(1)
    a = b = c = d = float32(i)
    e = f = g = h = summand
    for _ in range(rounds):
        for _ in range(8):
            a = a * factor + summand
            b = b * factor + summand
            c = c * factor + summand
            d = d * factor + summand
            e = e * factor + summand
            f = f * factor + summand
            g = g * factor + summand
            h = h * factor + summand
    if i < out.size:
        out[i] = a + b + c + d + e + f + g + h


def _best(run: Callable[[], object], repeats: int) -> float:
    """The shortest of some runs, in seconds."""
    api = device.driver()
    start, end = (device.call("an event", api.cuEventCreate, 0) for _ in range(2))
    stream, times = device.current.handle, []
    for _ in range(repeats + 1):
        device.call("timing", api.cuEventRecord, start, stream)
        run()
        device.call("timing", api.cuEventRecord, end, stream)
        device.call("timing", api.cuEventSynchronize, end)
        times.append(device.call("timing", api.cuEventElapsedTime, start, end))
    for event in (start, end):
        device.call("an event", api.cuEventDestroy, event)
    return min(times[1:]) / 1e3


def peak_flops(repeats: int = 10) -> float:
    """float32 operations a second, a multiplication and an addition counting as two."""
    blocks = BLOCKS * device.properties().multi_processor_count
    out = empty((blocks * THREADS,), f32)
    factor, summand = f32.numpy.type(0.5), f32.numpy.type(1.0)

    def run() -> None:
        multiply_add[blocks, THREADS](out.storage.array, factor, summand, ROUNDS)

    return 2.0 * 64 * ROUNDS * blocks * THREADS / _best(run, repeats)


def bandwidth(repeats: int = 10) -> float:
    """Bytes a second of a copy of 1 GiB, read once and written once."""
    n = 2**28
    a = empty((n,), f32)
    return 2.0 * 4 * n / _best(lambda: copy(a, f32), repeats)


def tensor_rate() -> float:
    """Multiply-adds of TF32 in the tensor cores for each one of float32 elsewhere.

    By the whitepapers on the A100, GA102, Ada and H100 architectures: 512 for 64 and
    1,024 for 128 a cycle in data centres, else as many; none before 8.0.
    """
    chip = device.compute_capability()
    return 0.0 if chip < (8, 0) else 8.0 if chip in ((8, 0), (9, 0)) else 1.0
