"""Simulated copies to shared memory that are under way (`cp.async`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda, float32

pytest.importorskip("numba_cuda")
from cuda_ops.block.copies import address_of, copy_async, copy_now, fences
from cuda_ops.runtime.launch import SIMULATED, kernel
from cuda_ops.simulator.watch import watching

pytestmark = pytest.mark.skipif(not SIMULATED, reason="about the simulator")
N = 8
move, move_now, clear = copy_async(1, False), copy_now(1, True), copy_async(1, True)
close, wait, wait_all = fences(True, 1)


@kernel
def reverse(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    move(cells, t, a, address_of(a, t), True)
    close()
    wait_all()
    cuda.syncthreads()
    out[t] = cells[N - 1 - t]


@kernel
def not_awaited(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    move(cells, t, a, address_of(a, t), True)
    close()
    cuda.syncthreads()
    out[t] = cells[N - 1 - t]


@kernel
def own_not_awaited(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    move(cells, t, a, address_of(a, t), True)
    close()
    cuda.syncthreads()
    out[N - 1 - t] = cells[t]


@kernel
def awaited_behind_the_barrier(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    move(cells, t, a, address_of(a, t), True)
    close()
    cuda.syncthreads()
    wait_all()
    out[t] = cells[N - 1 - t]


@kernel
def in_no_group(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    close()
    move(cells, t, a, address_of(a, t), True)
    wait_all()
    cuda.syncthreads()
    out[t] = cells[N - 1 - t]


@kernel
def in_the_newest_group(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    close()
    move(cells, t, a, address_of(a, t), True)
    close()
    wait()
    cuda.syncthreads()
    out[t] = cells[N - 1 - t]


@kernel
def zeros_not_awaited(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    clear(cells, t, a, address_of(a, t), False)
    close()
    cuda.syncthreads()
    out[t] = cells[N - 1 - t] + a[N - 1 - t]


@kernel
def started_too_early(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    cuda.syncthreads()
    out[t] = cells[N - 1 - t]
    move(cells, t, a, address_of(a, 0), True)  # while others still read
    close()
    wait_all()


@kernel
def two_groups(a, out):
    """The older group has arrived; the newer one is left alone until it has, too."""
    cells = cuda.shared.array(2 * N, float32)
    t = cuda.threadIdx.x
    move(cells, t, a, address_of(a, t), True)
    close()
    clear(cells, N + t, a, address_of(a, t), False)
    close()
    wait()
    cuda.syncthreads()
    first = cells[N - 1 - t]
    wait_all()
    cuda.syncthreads()
    out[t] = first + cells[2 * N - 1 - t]


@kernel
def without_cp_async(a, out):
    cells = cuda.shared.array(2 * N, float32)
    t = cuda.threadIdx.x
    move_now(cells, t, a, address_of(a, t), True)
    move_now(cells, N + t, a, address_of(a, t), False)
    cuda.syncthreads()
    out[t] = cells[N - 1 - t] + cells[2 * N - 1 - t]


def run(kernel: Any) -> list[float]:
    a, out = np.arange(1, N + 1, dtype=np.float32), np.zeros(N, np.float32)
    kernel[2, N](a, out)
    return list(out.tolist())


BACKWARDS = list(range(N, 0, -1))


@pytest.mark.parametrize("kernel", [reverse, two_groups, without_cp_async])
def test_copies_that_were_waited_for_are_there(kernel: Any) -> None:
    assert run(kernel) == BACKWARDS
    with watching() as watch:
        assert run(kernel) == BACKWARDS
    assert watch.total.races == 0


WRONG = [
    not_awaited,
    own_not_awaited,
    awaited_behind_the_barrier,
    in_no_group,
    in_the_newest_group,
    zeros_not_awaited,
    started_too_early,
]


@pytest.mark.parametrize("kernel", WRONG, ids=lambda kernel: kernel.fn.__name__)
def test_copies_that_are_under_way_are_not(kernel: Any) -> None:
    assert run(kernel) != BACKWARDS
    with watching(), pytest.raises(RuntimeError, match=r"race: thread .* cells"):
        run(kernel)


def test_who_copies_is_told() -> None:
    what = r"reads cells\[7\], which thread 7 has begun to copy and not waited for"
    with watching(), pytest.raises(RuntimeError, match=what):
        run(not_awaited)
