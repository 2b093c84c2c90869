"""Indexing on the GPU: NumPy and the CPU backend say what is right, to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fast_ops.memory import from_numpy as cpu
from fast_ops.memory import to_numpy as cpu_numpy
from minitorch.backend import get_backend
from minitorch.tensor_data import TensorData
from tests.cuda.sizes import pick

pytest.importorskip("numba_cuda")
from cuda_ops import index_errors, indexing, memory
from cuda_ops.runtime import device

on_cpu = get_backend("cpu")
KINDS = ["f4", "f8", "i8", "i4"]
# outer, n, inner: around vectors of 4 and blocks of threads
SHAPES = [(1, 7, 1), (1, 5, 4), (2, 3, 5), (3, 1, 8), (1, 9, 33), (1, 4, 36), (2, 6, 1)]


def gpu(x: np.ndarray) -> TensorData:
    return memory.from_numpy(x)


def numbers(shape: tuple[int, ...], kind: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind[0] == "i":
        return rng.integers(-9, 9, shape).astype(kind)
    return rng.normal(size=shape).astype(kind)


def same(ours: TensorData, theirs: TensorData) -> None:
    index_errors.raise_pending()
    np.testing.assert_array_equal(memory.to_numpy(ours), cpu_numpy(theirs))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_slices(shape: tuple[int, int, int], kind: str) -> None:
    a = numbers(shape, kind)
    for m in (0, 1, indexing.FEW, indexing.FEW + 1, pick(19, 5000)):
        index = np.random.default_rng(m).integers(0, shape[1], m)
        src = numbers((shape[0], m, shape[2]), kind, 1)
        ours, theirs = (gpu(a), 1, gpu(index)), (cpu(a), 1, cpu(index))
        same(indexing.index_select(*ours), on_cpu.index_select(*theirs))
        same(indexing.index_add(*ours, gpu(src)), on_cpu.index_add(*theirs, cpu(src)))
        out, expected = gpu(a), cpu(a.copy())
        indexing.index_copy_(out, 1, gpu(index), gpu(src))
        on_cpu.index_copy_(expected, 1, cpu(index), cpu(src))
        same(out, expected)


def test_bool_slices() -> None:
    a = np.array([[True, False], [False, False], [True, True]])
    index = np.array([2, 0, 2])
    same(
        indexing.index_select(gpu(a), 0, gpu(index)),
        on_cpu.index_select(cpu(a), 0, cpu(index)),
    )
    ours, theirs = (gpu(a), 0, gpu(index), gpu(a)), (cpu(a), 0, cpu(index), cpu(a))
    same(indexing.index_add(*ours), on_cpu.index_add(*theirs))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_elements(dim: int, kind: str) -> None:
    a = numbers((4, 3, 5), kind)
    for m in (0, 1, 2, pick(11, 300)):
        shape = [3, 2, 4]  # smaller than a's
        shape[dim] = m
        index = np.random.default_rng(m).integers(0, a.shape[dim], shape)
        src = numbers(
            (4, 3, max(5, m)) if dim == 2 else (max(4, m), max(3, m), 5), kind
        )
        ours, theirs = (gpu(a), dim, gpu(index)), (cpu(a), dim, cpu(index))
        same(indexing.gather(*ours), on_cpu.gather(*theirs))
        for name in ("scatter", "scatter_add"):
            got = getattr(indexing, name)(*ours, gpu(src))
            same(got, getattr(on_cpu, name)(*theirs, cpu(src)))


@pytest.mark.parametrize(
    "lines", [1, indexing.WARP_EACH, indexing.THREAD_EACH - 1, indexing.THREAD_EACH + 1]
)
def test_scatter_of_few_and_of_many_lines(lines: int) -> None:
    for m in (6, 33, 1030) if lines == 1 else (6, 33):
        a = numbers((3, lines), "f4")
        index = np.random.default_rng(0).integers(0, 3, (m, lines))
        src = numbers((m, lines), "f4", 2)
        for name in ("scatter", "scatter_add"):
            got = getattr(indexing, name)(gpu(a), 0, gpu(index), gpu(src))
            same(got, getattr(on_cpu, name)(cpu(a), 0, cpu(index), cpu(src)))


@pytest.mark.parametrize("same_index", [True, False])
def test_embedding_with_few_words(same_index: bool) -> None:
    """Long runs of one index: the sums are in the order of the loop."""
    m = pick(50, 20_000)
    index = np.zeros(m, np.int64) + 2
    if not same_index:
        index[::3] = 1
    table, grad = numbers((4, 12), "f4"), numbers((m, 12), "f4", 5)
    same(
        indexing.index_add(gpu(table), 0, gpu(index), gpu(grad)),
        on_cpu.index_add(cpu(table), 0, cpu(index), cpu(grad)),
    )


def test_views() -> None:
    a = numbers((6, 8), "f4")
    index = np.array([3, 0, 3, 5, 1])
    turned, host = gpu(a).permute((1, 0)), cpu(a).permute((1, 0))
    same(
        indexing.index_select(turned, 1, gpu(index)),
        on_cpu.index_select(host, 1, cpu(index)),
    )
    every_other = gpu(np.repeat(index, 2)).slice(0, 0, 5, 2)
    same(
        indexing.index_select(gpu(a), 0, every_other),
        on_cpu.index_select(cpu(a), 0, cpu(index)),
    )
    unaligned = gpu(numbers((7 * 8 + 1,), "f4")).slice(0, 1, 56)
    rows = TensorData(unaligned.storage, (7, 8), None, 1)
    expected = memory.to_numpy(unaligned).reshape(7, 8)[index]
    picked = indexing.index_select(rows, 0, gpu(index))
    np.testing.assert_array_equal(memory.to_numpy(picked), expected)
    out, src = gpu(a).permute((1, 0)), gpu(numbers((8, 5), "f4", 3))
    indexing.index_copy_(out, 1, gpu(index), src)
    expected = a.T.copy()
    for i, j in enumerate(index):
        expected[:, j] = memory.to_numpy(src)[:, i]
    np.testing.assert_array_equal(memory.to_numpy(out), expected)


def test_copy_from_itself() -> None:
    a = numbers((4, 2), "f4")
    out = gpu(a)
    indexing.index_copy_(out, 0, gpu(np.array([0, 1, 2])), out.slice(0, 1, 3))
    expected = np.concatenate([a[1:], a[3:]])
    np.testing.assert_array_equal(memory.to_numpy(out), expected)


def test_no_dims() -> None:
    a, index = gpu(np.float32([3.5]).reshape(())), gpu(np.zeros(2, np.int64))
    assert memory.to_numpy(indexing.index_select(a, 0, index)).tolist() == [3.5, 3.5]
    one = gpu(np.zeros((), np.int64))
    assert memory.to_numpy(indexing.gather(a, 0, one)) == 3.5
    assert memory.to_numpy(indexing.scatter_add(a, 0, one, a)) == 7.0
    src = gpu(np.float32([1.0, 2.0]))
    assert memory.to_numpy(indexing.index_add(a, 0, index, src)) == 6.5


@pytest.mark.parametrize("bad", [-1, 4, 2**40])
@pytest.mark.parametrize(
    "name",
    ["gather", "scatter", "scatter_add", "index_select", "index_add", "index_copy_"],
)
def test_a_bad_index_is_named(name: str, bad: int) -> None:
    a, index = gpu(numbers((4, 4), "f4")), np.array([0, 1, bad, 2])
    if name in ("gather", "scatter", "scatter_add"):
        index = np.repeat(index[:, None], 4, 1)
    args = [a, 0, gpu(index)]
    if name not in ("gather", "index_select"):
        args.append(gpu(numbers((4, 4), "f4")))
    call = getattr(indexing, name)
    message = rf"{name}: index {bad} is outside dimension 0, which has 4 element"
    with pytest.raises(IndexError, match=message):
        call(*args)
        memory.synchronize()
        index_errors.raise_pending()
    index_errors.raise_pending()  # told once


def test_a_late_report_says_that_the_cause_was_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU's program goes on; with CUDA_LAUNCH_BLOCKING=1 it does not."""
    a, index = gpu(numbers((4, 4), "f4")), gpu(np.array([0, 7]))
    index_errors.notes()
    monkeypatch.setattr(index_errors, "SIMULATED", False)
    monkeypatch.setattr(device, "BLOCKING", False)
    indexing.index_select(a, 0, index)
    with pytest.raises(
        IndexError, match=r"index 7 .* earlier .*CUDA_LAUNCH_BLOCKING=1"
    ):
        memory.synchronize()
        device.look_at_notes()
    monkeypatch.setattr(device, "BLOCKING", True)
    with pytest.raises(IndexError, match=r"index 7 .*allowed: from 0 to 3$"):
        indexing.index_select(a, 0, index)


@pytest.mark.parametrize("value, blocking", [("1", True), ("0", False), ("", False)])
def test_the_environment_says_whether_launches_are_waited_for(
    value: str, blocking: bool
) -> None:
    code = "from cuda_ops.runtime import device; print(device.BLOCKING)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_LAUNCH_BLOCKING": value},
    )
    assert found.stdout == f"{blocking}\n", found.stderr
