"""Races and memory traffic of simulated kernels."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

pytest.importorskip("numba_cuda")
from cuda_ops.runtime.launch import SIMULATED, kernel
from cuda_ops.simulator.watch import watching

pytestmark = pytest.mark.skipif(not SIMULATED, reason="about the simulator")
N = 16


@kernel
def reverse(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    cuda.syncthreads()
    out[t] = cells[N - 1 - t]


@kernel
def reverse_too_early(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    cuda.syncthreads()
    cells[t] = a[t]
    out[t] = cells[N - 1 - t]


@kernel
def shift_in_place(a):
    i = cuda.grid(1)
    if i + 1 < a.size:
        a[i] = a[i + 1]


@kernel
def add_all(a, out):
    out[0] += a[cuda.grid(1)]


@kernel
def add_all_atomically(a, out):
    cuda.atomic.add(out, 0, a[cuda.grid(1)])


@kernel
def gather(a, out, step):
    i = cuda.grid(1)
    out[i] = a[i * step % a.size]


@kernel
def same_everywhere(a, out):
    out[0] = a[0]


@kernel
def barrier_for_half(a, out):
    t = cuda.threadIdx.x
    if t < N // 2:
        cuda.syncthreads()
        out[t] = a[t]


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(N, dtype=np.float32), np.zeros(N, np.float32)


def test_a_barrier_makes_it_right() -> None:
    a, out = arrays()
    with watching():
        reverse[1, N](a, out)
    assert out.tolist() == a[::-1].tolist()


def test_a_missing_barrier_is_always_found() -> None:
    a, out = arrays()
    for _ in range(5):
        with watching(), pytest.raises(RuntimeError, match=r"race: thread .* cells\["):
            reverse_too_early[1, N](a, out)


def test_a_barrier_is_for_all() -> None:
    a, out = arrays()
    barrier_for_half[1, N](a, out)
    with watching(), pytest.raises(RuntimeError, match="8 threads wait at a barrier"):
        barrier_for_half[1, N](a, out)


@pytest.mark.parametrize("blocks", [1, 4])
def test_neighbours_in_place(blocks: int) -> None:
    a, _ = arrays()
    with watching(), pytest.raises(RuntimeError, match=r"race: thread .* a\["):
        shift_in_place[blocks, N // blocks](a)


def test_one_sum_for_all() -> None:
    a, out = arrays()
    with watching(), pytest.raises(RuntimeError, match=r"race: thread 1 .* out\[0\]"):
        add_all[1, N](a, out)
    with watching():
        add_all_atomically[1, N](a, out[1:])
    assert out[1] == a.sum()


def test_the_same_value_is_no_race() -> None:
    a, out = arrays()
    with watching():
        same_everywhere[2, 4](a, out)


def test_pieces_of_memory() -> None:
    a, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with watching() as side_by_side:
        gather[2, 32](a, out, 1)
    with watching() as apart:
        gather[2, 32](a, out, 8)
    # 64 floats are 8 pieces of 32 bytes; a step of 8 floats touches one for each.
    assert side_by_side.moved == 8 + 8
    assert apart.moved == 2 * 8 + 8


@kernel
def read_before_write(out):
    cells = cuda.shared.array(4, float32)
    out[cuda.grid(1)] = cells[cuda.threadIdx.x]
    cuda.syncthreads()
    cells[cuda.threadIdx.x] = 1


def test_shared_memory_begins_as_garbage_in_every_block() -> None:
    out = np.zeros(8, np.float32)
    read_before_write[2, 4](out)
    assert np.isnan(out).all()
