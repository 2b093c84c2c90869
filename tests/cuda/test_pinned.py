"""Pinned memory: who may have it when, copies that nobody waits for, loaders."""

from __future__ import annotations

import gc
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import minitorch
from minitorch.data import DataLoader, TensorDataset

pytest.importorskip("numba_cuda")
from cuda_ops.runtime import pinned
from cuda_ops.runtime.pinned import LEAST, PinnedPool, SimulatedHost, buffer_of


class PaperHost(SimulatedHost):
    """Gives `total` bytes; events happen when the test says so."""

    def __init__(self, total: int = 2**20) -> None:
        super().__init__()
        self.total = total
        self.now = 0
        self.pending: list[Any] = []
        self.waited: list[Any] = []

    def allocate(self, size: int) -> int | None:
        if sum(a.size for a in self.held.values()) + size > self.total:
            return None
        return super().allocate(size)

    def stream(self) -> int:
        return self.now

    def new_event(self) -> Any:
        return object()

    def record(self, event: Any) -> None:
        self.pending.append(event)

    def happened(self, event: Any) -> bool:
        return event not in self.pending

    def wait(self, event: Any) -> None:
        self.waited.append(event)
        self.pending = [e for e in self.pending if e is not event]


def address(array: np.ndarray) -> int:
    return array.ctypes.data


# --------------------------------------------------------------------------- memory


def test_memory_is_used_again_when_the_array_is_gone() -> None:
    pool = PinnedPool(PaperHost())
    a = pinned.empty((10, 3), np.dtype("f4"), pool)
    view, place = a[2:, 1], address(a)
    del a
    other = pinned.empty((30,), np.dtype("f4"), pool)
    assert address(other) != place
    del view
    assert address(pinned.empty((30,), np.dtype("f4"), pool)) == place
    assert pool.total == 2 * LEAST


def test_memory_is_not_used_again_before_the_copy_is_done() -> None:
    host = PaperHost()
    pool = PinnedPool(host)
    a = pinned.empty((100,), np.dtype("f4"), pool)
    place, buffer = address(a), buffer_of(a)
    assert buffer is not None
    buffer.copied()
    host.now = 7  # a second copy, on another stream
    buffer.copied()
    del a
    others = []
    for under_way in (2, 1):
        assert len(host.pending) == under_way
        others.append(pinned.empty((100,), np.dtype("f4"), pool))
        host.pending.pop()
    assert place not in map(address, others)
    assert address(pinned.empty((100,), np.dtype("f4"), pool)) == place


def test_above_the_limit_a_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "LIMIT", LEAST)
    host = PaperHost()
    pool = PinnedPool(host)
    buffer = pool.take(10)
    buffer.copied()
    pool.give(buffer)
    assert pool.take(10) is buffer and len(host.waited) == 1 and not host.pending


def test_idle_memory_is_given_back_before_there_is_an_error() -> None:
    host = PaperHost(total=4 * LEAST)
    pool = PinnedPool(host)
    pool.give(pool.take(3 * LEAST))
    kept = pool.take(2 * LEAST)  # does not fit beside the 4
    assert pool.total == 2 * LEAST == kept.bytes.size
    with pytest.raises(RuntimeError, match=r"0\.0 MiB were asked .*pin_memory out"):
        pool.take(4 * LEAST)
    pool.give(kept)
    assert pool.take(4 * LEAST).bytes.size == 4 * LEAST == pool.total


# -------------------------------------------------------------------------- tensors


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32", "bool"])
def test_pin_memory_copies(kind: str) -> None:
    dtype = getattr(minitorch, kind)
    minitorch.zeros(1, device="cuda")
    x = minitorch.arange(12).reshape(3, 4).to(dtype)
    y = x.T.pin_memory()
    assert y.is_pinned() and y[1:].is_pinned() and not x.is_pinned()
    assert y.dtype is dtype and y.device == "cpu" and y.is_contiguous()
    assert y.tolist() == x.T.tolist()
    assert y.pin_memory() is y
    assert (y + y).is_pinned() is False


def test_pinned_memory_is_aligned_and_may_be_empty() -> None:
    x = minitorch.ones(5).pin_memory()
    assert x.numpy().ctypes.data % 16 == 0
    empty = minitorch.zeros(0, 3).pin_memory()
    assert empty.shape == (0, 3)
    assert empty.to("cuda", non_blocking=True).cpu().shape == (0, 3)


def test_a_gradient_flows_through_pinned_memory() -> None:
    x = minitorch.tensor([1.0, 2.0], requires_grad=True)
    (x.pin_memory().to("cuda", non_blocking=True) * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]
    assert x.grad.device == "cpu"


def test_only_memory_of_the_cpu_is_pinned() -> None:
    x = minitorch.zeros(3, device="cuda")
    assert not x.is_pinned()
    with pytest.raises(RuntimeError, match=r"pin_memory: the tensor is on 'cuda:0'"):
        x.pin_memory()


def test_non_blocking_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.arange(5000, dtype=np.float32).reshape(50, 100)
    x = minitorch.tensor(a).pin_memory()
    copied: list[Any] = []
    real = pinned.Buffer.copied
    noting = lambda buffer: (copied.append(buffer), real(buffer))
    monkeypatch.setattr(pinned.Buffer, "copied", noting)
    own = buffer_of(x.numpy())
    assert np.array_equal(x.to("cuda").numpy(), a) and own not in copied
    for part, expected in ((x, a), (x[3:7], a[3:7]), (x[:, ::2], a[:, ::2])):
        on_gpu = part.to("cuda", non_blocking=True)
        assert np.array_equal(on_gpu.numpy(), expected)
    assert copied.count(own) == 2  # not from the part with gaps
    assert np.array_equal(x.cuda(non_blocking=True).numpy(), a)
    like_y = x.to(minitorch.zeros(1, device="cuda"), non_blocking=True)
    assert np.array_equal(like_y.numpy(), a)
    ordinary = minitorch.tensor(a).to("cuda", non_blocking=True)
    assert np.array_equal(ordinary.numpy(), a)


def test_back_to_the_cpu_into_pinned_memory() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = minitorch.tensor(a, device="cuda").T.to("cpu", non_blocking=True)
    minitorch.cuda.synchronize()
    assert x.is_pinned() and np.array_equal(x.numpy(), a.T)
    assert not minitorch.tensor(a, device="cuda").to("cpu").is_pinned()


def test_static_inputs_without_waiting() -> None:
    static = minitorch.zeros(2, 3, device="cuda")
    x = minitorch.arange(6).reshape(2, 3).double().pin_memory()
    static.copy_(x, non_blocking=True)
    assert static.tolist() == x.tolist() and static.dtype is minitorch.float32
    on_cpu = minitorch.zeros(2, 3).copy_(static, non_blocking=True)
    assert on_cpu.tolist() == x.tolist()


def test_a_capture_refuses_pinned_copies() -> None:
    x = minitorch.ones(4).pin_memory()
    with (
        pytest.raises(RuntimeError, match="copying from the CPU cannot be captured"),
        minitorch.cuda.graph(minitorch.cuda.CUDAGraph()),
    ):
        x.to("cuda", non_blocking=True)


# -------------------------------------------------------------------------- loaders

Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_pinned(prefetch: int) -> None:
    x, y = minitorch.randn(10, 3), minitorch.arange(10)
    data, options = TensorDataset(x, y), {"batch_size": 4, "prefetch": prefetch}
    plain = list(DataLoader(data, shuffle=True, **options))
    batches = list(DataLoader(data, shuffle=True, pin_memory=True, **options))
    assert len(batches) == 3
    for batch, expected in zip(batches, plain, strict=True):
        assert all(t.is_pinned() for t in batch)
        for ours, theirs in zip(batch, expected, strict=True):
            assert ours.dtype is theirs.dtype and ours.tolist() == theirs.tolist()
            assert ours.to("cuda", non_blocking=True).tolist() == theirs.tolist()


def test_all_parts_of_a_batch_are_pinned() -> None:
    def collate(samples: list[int]) -> Any:
        x = minitorch.tensor(samples)
        return {"pair": Pair(x, [x, "text"]), "n": len(samples), "t": (x,)}

    (batch,) = DataLoader(range(3), 3, collate_fn=collate, pin_memory=True)
    assert type(batch["pair"]) is Pair and batch["pair"].x.is_pinned()
    assert batch["pair"].y[0].is_pinned() and batch["pair"].y[1] == "text"
    assert batch["n"] == 3 and type(batch["t"]) is tuple and batch["t"][0].is_pinned()


def test_an_epoch_needs_few_buffers() -> None:
    data = TensorDataset(minitorch.randn(64, 100))
    loader = DataLoader(data, 2, pin_memory=True)
    list(zip(range(8), loader))
    gc.collect()
    before = pinned.POOL.total
    for (x,) in loader:
        x.to("cuda", non_blocking=True)
    assert pinned.POOL.total <= before + 8 * LEAST
