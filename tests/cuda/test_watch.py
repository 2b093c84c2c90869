"""Races and memory traffic of simulated kernels."""

from __future__ import annotations

import linecache
import math
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, float64

pytest.importorskip("numba_cuda")
from cuda_ops.block.intrinsics import load4, shuffle, store, store4
from cuda_ops.runtime.launch import SIMULATED, kernel
from cuda_ops.simulator.sizes import REAL, real_sizes
from cuda_ops.simulator.watch import Traffic, watching

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
    with watching(), pytest.raises(RuntimeError, match="8 of 16 threads wait at"):
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


@kernel
def one_to_the_right(out):
    out[cuda.grid(1) + 1] = 1


def test_who_leaves_an_array_is_told() -> None:
    said = r"thread 3 of block \(1, 0, 0\) writes out\[8\], but out has the size 8"
    with watching(), pytest.raises(IndexError, match=said):
        one_to_the_right[2, 4](np.zeros(8))


@kernel
def mistaken(kind, out):
    y = cuda.threadIdx.y
    if kind == 0 and y == 2:
        out[y, 0] = 1
    elif y == 2:
        out[y] = "3"


@pytest.mark.parametrize("kind, said", [(0, "one dimension"), (1, "numbers, no text")])
def test_threads_of_a_rectangle_have_indices(kind: int, said: str) -> None:
    said = rf"thread \(0, 2, 0\) of block .* writes out\[2.*{said}"
    with watching(), pytest.raises((IndexError, TypeError), match=said):
        mistaken[1, (1, 3)](kind, np.zeros(8))


@kernel
def from_the_left(kind, a, out):
    t = cuda.grid(1)
    cells = cuda.shared.array(4, float32)
    own = cuda.local.array(4, float32)
    cells[t] = own[t] = a[t]
    cuda.syncthreads()
    if kind == "shared":
        out[t] = cells[t - 1]
    elif kind == "local":
        own[t - 1] = 1
    elif kind == "global":
        out[t] = a[t - 1]
    elif kind == "atomic":
        cuda.atomic.add(out, t - 1, 1)
    else:
        out[t] = cells[-1] + own[-4] + a[-1]


@pytest.mark.parametrize(
    "kind, said",
    [
        ("shared", r"reads cells\[-1\]"),
        ("local", r"writes own\[-1\]"),
        ("global", r"reads a\[-1\]"),
        ("atomic", r"out\[-1\]"),
    ],
)
def test_an_index_that_is_computed_is_not_negative(kind: str, said: str) -> None:
    """Numba wraps a signed one around; whoever computes it does not mean that."""
    a, out = np.ones((2, 4), np.float32)
    with watching(), pytest.raises(IndexError, match=f"thread 0 .* {said}.* Numba"):
        from_the_left[1, 4](kind, a, out)


def test_a_literal_counts_from_the_end_as_in_numba() -> None:
    a, out = np.ones((2, 4), np.float32)
    with watching():
        from_the_left[1, 4]("literals", a, out)


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


@kernel
def own_cells(a, out):
    cells = cuda.shared.array(4, float32)
    t = cuda.threadIdx.x
    cells[t] = a[cuda.grid(1)]
    out[cuda.grid(1)] = cells[t]


@kernel
def read_or_write(out):
    cells = cuda.shared.array(4, float32)
    if cuda.blockIdx.x == 0:
        cells[cuda.threadIdx.x] = 1
    else:
        out[cuda.threadIdx.x] = cells[cuda.threadIdx.x]


def test_without_barriers_each_block_has_shared_memory_of_its_own() -> None:
    a, out = arrays()
    with watching():
        own_cells[N // 4, 4](a, out)
    assert out.tolist() == a.tolist()
    out = np.zeros(4, np.float32)
    read_or_write[2, 4](out)
    assert np.isnan(out).all()


@kernel
def two_on_a_line(a, out):
    left, right = cuda.shared.array(N, float32), cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    left[t] = a[t]
    right[t] = 100 + a[t]
    cuda.syncthreads()
    out[t] = left[N - 1 - t] + 1000 * right[N - 1 - t]


def test_a_line_may_ask_for_two_shared_arrays() -> None:
    a, out = arrays()
    for _ in range(20):  # also when Python's interpreter has got to know the code
        with watching():
            two_on_a_line[1, N](a, out)
        assert out.tolist() == (a + 1000 * (100 + a))[::-1].tolist()


# ---------------------------------------------------------- requests, sectors, banks


@kernel
def read_steps(a, out, step):
    i = cuda.grid(1)
    out[i] = a[i * step]


@kernel
def read_vectors(a, out):
    i = cuda.grid(1)
    x0, x1, x2, x3 = load4(a, 4 * i)
    store(out, i, x0 + x1 + x2 + x3)


@kernel
def read_shared_steps(out, step):
    cells = cuda.shared.array(32 * 64, float32)
    t = cuda.threadIdx.x
    out[t] = cells[t * step]


@kernel
def copy_shared_vectors(a, out):
    cells = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    store4(cells, 4 * t, a[t], a[t], a[t], a[t])
    x0, x1, x2, x3 = load4(cells, 4 * t)
    out[t] = x0 + x1 + x2 + x3


@kernel
def read_shared_doubles(out):
    cells = cuda.shared.array(32, float64)
    t = cuda.threadIdx.x
    out[t] = cells[t]


def counted(run: Any, blocks: int, *args: Any) -> dict[str, Traffic]:
    """What each line of a kernel asks for, by its text."""
    with watching() as watch:
        run[blocks, 32](*args)
    return {
        linecache.getline(line.file, line.number).strip(): traffic
        for line, traffic in watch.lines.items()
    }


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 8, 9, 32])
def test_strides_and_sectors(step: int) -> None:
    a, out = np.zeros(32 * step, np.float32), np.zeros(32, np.float32)
    (line,) = counted(read_steps, 1, a, out, step).values()
    # The line also stores: one request of 4 sectors.
    assert line.requests == 2 and line.ideal_sectors == 4 + 4
    assert line.sectors == min(32, 4 * step) + 4


def test_sectors_are_those_of_the_allocation() -> None:
    whole, out = np.zeros(33, np.float32), np.zeros(32, np.float32)
    (line,) = counted(read_steps, 1, whole[1:], out, 1).values()
    assert line.sectors == 5 + 4 and line.ideal_sectors == 4 + 4


def test_one_address_is_one_sector() -> None:
    a, out = np.zeros(32, np.float32), np.zeros(32, np.float32)
    (line,) = counted(read_steps, 1, a, out, 0).values()
    assert line.sectors == line.ideal_sectors == 1 + 4


def test_sixteen_bytes_at_once_are_one_request() -> None:
    a, out = np.zeros(128, np.float32), np.zeros(32, np.float32)
    found = counted(read_vectors, 1, a, out)
    load, stored = found["x0, x1, x2, x3 = load4(a, 4 * i)"], found[STORED]
    assert (load.requests, load.sectors, load.ideal_sectors) == (1, 16, 16)
    assert (stored.requests, stored.sectors, stored.ideal_sectors) == (1, 4, 4)


STORED = "store(out, i, x0 + x1 + x2 + x3)"


@pytest.mark.parametrize("step", [*range(1, 10), 16, 31, 32, 33, 48, 63])
def test_strides_and_banks(step: int) -> None:
    line = counted(read_shared_steps, 1, np.zeros(32, np.float32), step)[
        "out[t] = cells[t * step]"
    ]
    assert line.shared_requests == line.ideal_wavefronts == 1
    assert line.wavefronts == math.gcd(step, 32)
    assert line.bank_conflicts == math.gcd(step, 32) - 1


def test_the_same_word_for_all_is_one_wavefront() -> None:
    found = counted(read_shared_steps, 1, np.zeros(32, np.float32), 0)
    assert found["out[t] = cells[t * step]"].wavefronts == 1


def test_wide_elements_of_shared_memory_come_in_turns() -> None:
    found = counted(copy_shared_vectors, 1, *(np.zeros(32, np.float32),) * 2)
    for text in ("store4(cells, 4 * t, a[t], a[t], a[t], a[t])", LOADED):
        assert found[text].shared_requests == 1
        assert found[text].wavefronts == found[text].ideal_wavefronts == 4
    doubles = counted(read_shared_doubles, 1, np.zeros(32))["out[t] = cells[t]"]
    assert doubles.wavefronts == doubles.ideal_wavefronts == 2


LOADED = "x0, x1, x2, x3 = load4(cells, 4 * t)"


@kernel
def read_apart(a, out):
    t = cuda.threadIdx.x
    if t < 16:
        out[t] = a[0]  # one more access than the others have had
    out[t] = a[t]


@kernel
def read_in_rounds(a, out, rounds):
    t = cuda.threadIdx.x
    for k in range(rounds):
        if k >= t // 16:  # half of the lanes come later
            out[t] = a[32 * k + t]
        cuda.syncthreads()


def test_instructions_are_told_apart_by_their_place() -> None:
    a, out = np.zeros(32, np.float32), np.zeros(32, np.float32)
    found = counted(read_apart, 1, a, out)
    # A load and a store each; those of 16 lanes, and those of all.
    assert found["out[t] = a[t]"] == Traffic(2, 8, 8)
    (early,) = [t for text, t in found.items() if text.startswith("out[t] = a[0]")]
    assert early == Traffic(2, 3, 3)


def test_iterations_are_told_apart_by_barriers() -> None:
    a, out = np.zeros(64, np.float32), np.zeros(32, np.float32)
    found = counted(read_in_rounds, 1, a, out, 2)["out[t] = a[32 * k + t]"]
    assert found == Traffic(4, 2 + 2 + 4 + 4, 2 + 2 + 4 + 4)


@kernel
def first_adds_cells(a, out):
    cells = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    cuda.syncthreads()
    if t == 0:
        for i in range(1, N):
            cells[0] += cells[i]
        out[0] = cells[0]


def test_places_are_counted_for_the_busiest_thread() -> None:
    a, out = arrays()
    with watching() as watch:
        reverse[1, N](a, out)
    assert watch.busiest == 4  # a[t], cells[t], cells[N - 1 - t], out[t]
    with watching() as watch:
        first_adds_cells[1, N](a, out)
    assert watch.busiest == 1 + N + 1


def test_each_warp_and_each_iteration_is_a_request() -> None:
    a, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with watching() as watch:
        read_steps[2, 32](a, out, 1)
        read_steps[1, 64](a, out, 1)
    assert watch.total == Traffic(8, 32, 32)


# ------------------------------------------------------------------- warps and NaN


@kernel
def reverse_in_a_warp(a, out):
    cells = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    cuda.syncwarp()
    out[t] = cells[31 - t]


@kernel
def reverse_between_warps(a, out):
    cells = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    cuda.syncwarp()
    out[t] = cells[63 - t]


@kernel
def reverse_after_a_shuffle(a, out):
    cells = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    cells[t] = a[t]
    x = shuffle(a[t], 0)
    out[t] = cells[31 - t] + x - x


def test_a_warp_waits_for_itself() -> None:
    a, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    with watching():
        reverse_in_a_warp[1, 32](a, out)
    assert out.tolist() == a[::-1].tolist()


def test_syncwarp_is_not_for_other_warps_and_a_shuffle_no_barrier() -> None:
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with watching(), pytest.raises(RuntimeError, match=r"race: .* cells\["):
        reverse_between_warps[1, 64](a, out)
    with watching(), pytest.raises(RuntimeError, match=r"race: .* cells\["):
        reverse_after_a_shuffle[1, 32](a, out)


def test_the_same_nan_is_no_race() -> None:
    out = np.zeros(1, np.float32)
    with watching():
        same_everywhere[2, 4](np.full(4, np.nan, np.float32), out)
    assert np.isnan(out[0])


def test_a_race_is_counted_at_its_line() -> None:
    a, out = arrays()
    with watching() as watch, pytest.raises(RuntimeError, match="race"):
        reverse_too_early[1, N](a, out)
    (line,) = [line for line, traffic in watch.lines.items() if traffic.races]
    text = linecache.getline(line.file, line.number).strip()
    assert text == "cells[t] = a[t]"  # by thread 8, after thread 7 has read it


SIDE = 2
PITCH = SIDE + 1
BOTH: int = 2 * PITCH
LAST = min(BOTH, 64)


def test_real_sizes_are_those_of_what_follows_from_them(monkeypatch) -> None:
    monkeypatch.setitem(REAL, __name__, {"SIDE": 32})
    assert (SIDE, PITCH, BOTH, LAST) == (2, 3, 6, 6)
    with real_sizes(__name__):
        assert (SIDE, PITCH, BOTH, LAST) == (32, 33, 66, 64)
    assert (SIDE, PITCH, BOTH, LAST) == (2, 3, 6, 6)
