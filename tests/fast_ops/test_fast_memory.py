"""Memory of the CPU backend: sharing with NumPy, reuse of buffers, loop plans."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fast_ops import elementwise, limits, pool, sort
from fast_ops.launch import compile_kernel, makes_arrays
from minitorch import dtypes
from minitorch.backend import get_backend
from minitorch.backend.host import memory
from minitorch.backend.host.workspace import LINE_BYTES, workspace
from minitorch.tensor_data import TensorData

cpu = get_backend("cpu")

LARGE = (70_001,)  # float32 elements that go to the pool, a small network's layer


def test_from_numpy_shares_memory_of_any_strides() -> None:
    base = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    for view in (base, base.T, base[:, 1::2], base[2:], base[1, 2:3]):
        shared = cpu.from_numpy(view)
        np.testing.assert_array_equal(cpu.to_numpy(shared), view)
        assert np.shares_memory(cpu.to_numpy(shared), base)


def test_from_numpy_copies_what_it_cannot_share() -> None:
    base = np.arange(6.0)
    fixed = base.copy()
    fixed.flags.writeable = False
    packed = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")]))["b"]
    for array in (base[::-1], fixed, packed, np.broadcast_to(base, (2, 6))):
        got = cpu.from_numpy(array)
        np.testing.assert_array_equal(cpu.to_numpy(got), array)
        assert not np.shares_memory(cpu.to_numpy(got), array)


def test_from_numpy_of_empty_and_scalar_arrays() -> None:
    for shape in ((), (0,), (0, 3), (3, 0, 2)):
        got = cpu.from_numpy(np.ones(shape, np.int64).T)
        assert cpu.to_numpy(got).shape == shape[::-1]


def test_from_numpy_names_the_types_that_exist() -> None:
    with pytest.raises(TypeError, match="float32"):
        cpu.from_numpy(np.ones(3, np.uint8))


@pytest.mark.skipif(not memory.GIL, reason="buffers are reused only under a GIL")
def test_a_large_buffer_is_used_again_when_nobody_has_it() -> None:
    first = cpu.empty(LARGE, dtypes.float32)
    place = first.storage.array.ctypes.data
    del first
    again = cpu.empty(LARGE, dtypes.int32)  # not an older one, which no cache holds
    assert again.storage.array.ctypes.data == place


VIEWS: dict[str, Callable[[TensorData], Any]] = {
    "window": lambda a: cpu.to_numpy(TensorData(a.storage, (3,), (1,), 2)),
    "array": cpu.to_numpy,
    "bits": lambda a: cpu.to_numpy(a)[10:20].view(np.int32).reshape(2, 5),
    "memoryview": lambda a: memoryview(cpu.to_numpy(a)[3:9]),
    "strided": lambda a: TensorData(a.storage, (2, 2), (5, -1), 9).array(),
    "torch": lambda a: torch.from_numpy(cpu.to_numpy(a))[5:].numpy(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_buffer_is_not_reused_while_any_view_lives(name: str) -> None:
    a = cpu.full(LARGE, 7.0, dtypes.float32)
    view = VIEWS[name](a)
    before = np.array(view)
    del a
    others = [cpu.full(LARGE, 1.0, dtypes.float32) for _ in range(5)]
    np.testing.assert_array_equal(np.array(view), before)
    assert len(others) == 5


def test_a_storage_alone_keeps_its_buffer() -> None:
    storage = cpu.full(LARGE, 7.0, dtypes.float32).storage
    others = [cpu.full(LARGE, 1.0, dtypes.float32) for _ in range(5)]
    assert storage.array[0] == 7.0 and len(others) == 5


def test_large_buffers_start_at_a_cache_line() -> None:
    a = cpu.empty(LARGE, dtypes.float64)
    assert a.storage.array.ctypes.data % LINE_BYTES == 0
    assert a.storage.array.shape == LARGE
    assert all(
        workspace(n, dtypes.int32).ctypes.data % LINE_BYTES == 0 for n in (1, 99)
    )


def test_threads_never_get_the_same_buffer() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            a = cpu.full(LARGE, float(number), dtypes.float32)
            b = cpu.full(LARGE, -1.0, dtypes.float32)
            if a.storage.array[0] != number or a.storage.array[-1] != number:
                wrong.append(number)
            del a, b

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_release_gives_idle_buffers_back() -> None:
    kept = cpu.full(LARGE, 3.0, dtypes.float32)
    cpu.empty(LARGE, dtypes.float32)  # nobody keeps it
    before = memory._total[0]
    memory.release()
    assert memory._total[0] < before
    assert cpu.to_numpy(kept)[0] == 3.0


def test_plan_merges_and_orders_loops() -> None:
    assert memory.plan((2, 3, 4), (12, 4, 1), (12, 4, 1)).shape == (1, 1, 1, 24)
    assert memory.plan((2, 3, 5), (15, 5, 1), (0, 0, 1)).shape == (1, 1, 6, 5)
    long = memory.plan((1000, 3), (3, 1), (0, 1))
    assert long.shape == (1, 1, 3, 1000)  # the long loop goes inside
    many = memory.plan((2,) * 6, (1, 2, 4, 8, 16, 32), (32, 16, 8, 4, 2, 1))
    assert len(many.outer) == 4 and many.shape == (2, 2, 2, 2)


def test_the_limit_is_measured_on_whole_cache_lines() -> None:
    """A kernel whose vectors straddle lines would say that the machine can do less."""
    panels, out = (
        limits.from_line(2 * limits.ROOM, 0.5),
        limits.from_line(2 * limits.OUT, 0.0),
    )
    assert panels.ctypes.data % LINE_BYTES == out.ctypes.data % LINE_BYTES == 0
    limits._multiply_add(panels, out, 2, 3)  # two tiles, three times; all is added up
    np.testing.assert_array_equal(out, 3 * limits.DEPTH * 0.5 * 0.5)


def test_kernels_that_make_arrays_of_their_own_are_known() -> None:
    """The others do without counts of references, which take time at each call."""
    assert makes_arrays(sort._sort_rows)
    assert makes_arrays(pool._max_pool2d)  # by a device function that it calls
    assert not makes_arrays(elementwise._where_flat)


def count_by_zeros(a, out):
    counts = np.zeros(out.size, np.int64)
    for x in a:
        counts[x] += 1
    out[:] = counts


def count_by_a_copy(a, out):
    counts = out.copy()
    for i in range(counts.size):
        counts[i] = 0
    for x in a:
        counts[x] += 1
    out[:] = counts


def count_by_a_list(a, out):
    counts = [0] * out.size
    for x in a:
        counts[x] += 1
    for i in range(out.size):
        out[i] = counts[i]


def count_by_a_comprehension(a, out):
    counts = [i - i for i in range(out.size)]
    for x in a:
        counts[x] += 1
    for i in range(out.size):
        out[i] = counts[i]


@pytest.mark.parametrize(
    "loop",
    [count_by_zeros, count_by_a_copy, count_by_a_list, count_by_a_comprehension],
)
def test_a_kernel_may_make_arrays_and_lists_of_its_own(loop) -> None:
    a, out = np.array([1, 3, 1, 0]), np.full(4, 9)
    compile_kernel(loop, on_disk=False)(a, out)
    assert out.tolist() == [1, 2, 0, 1]


def _add_rows(out, values, dense):
    row = out[1:5]
    for p in range(values.size):
        row += values[p] * dense[p : p + row.size]


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_kernel_may_make_arrays_that_no_name_tells(on_disk: bool) -> None:
    assert not makes_arrays(_add_rows)
    add_rows = compile_kernel(_add_rows, (), on_disk=on_disk)
    for kind in (np.float64, np.float32):
        values, dense = np.arange(3, dtype=kind), np.arange(9, dtype=kind)
        out = np.zeros(6, kind)
        add_rows(out, values, dense)
        assert out.tolist() == [0, 5, 8, 11, 14, 0]
