"""What ranks send can be part of a CUDA graph, or is refused before it is begun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from rank_checks import homeless

import minitorch
from helpers import SIMULATED
from minitorch import nn, optim
from minitorch.cuda import CUDAGraph, graph, make_graphed_step
from minitorch.executor import postponed

pytest.importorskip("numba_cuda")
pytest.importorskip("torch")
from cuda_ops.graphs import CaptureError
from minitorch.distributed import all_reduce, transport
from minitorch.distributed.fsdp import fully_shard
from minitorch.nn.parallel import DistributedDataParallel

RANKS = Path(__file__).with_name("graph_ranks.py")


class Sent:
    """Work of torch's, which must not be asked for during a capture, nor after it, and
    for which nobody can wait on the other side of where a capture begins or ends."""

    def __init__(self) -> None:
        self.captured, self.waits = postponed(), 0

    def is_completed(self) -> bool:
        assert not self.captured
        return True

    def wait(self, *_: Any) -> None:
        assert self.captured == postponed()
        self.waits += 1


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A group whose only rank sends to nobody."""
    made: list[Sent] = []

    def begin(*_: Any) -> Sent:
        made.append(Sent())
        return made[-1]

    alone: Any = transport.TorchGroup.__new__(transport.TorchGroup)
    alone.handle = SimpleNamespace(allreduce=begin)
    alone.ranks, alone.backend, alone.me, alone.store = (0,), "nccl", 0, None
    alone.count, alone.under_way, alone.captures = transport.COMPARED, [], WeakSet()
    alone.looks, alone.slow, alone.lately = 0.0, alone, []
    alone.made_by_torch = made
    monkeypatch.setattr(transport, "every", {alone})
    monkeypatch.setattr(transport.dist, "broadcast", begin)
    monkeypatch.setattr(transport.dist, "get_world_size", lambda: 1)
    return alone


def training(group: Any, how: Any = lambda model: model, **options: Any) -> Any:
    """A step, and the model."""
    minitorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).to("cuda")
    options = {"bucket_cap_mb": 1e-5, "init_sync": False, **options}
    whole = how(DistributedDataParallel(model, process_group=group, **options))
    optimizer = optim.AdamW(model.parameters(), 0.1)

    def step(x: minitorch.Tensor) -> minitorch.Tensor:
        optimizer.zero_grad()
        loss = whole(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model


def losses(step: Any) -> list[float]:
    inputs = (minitorch.full((4, 5), 0.1 * i, device="cuda") for i in range(5))
    return [step(x).item() for x in inputs]


def test_all_reduces_are_captured_and_go_before_their_group(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = training(group)
    expected = losses(plain)
    del group.made_by_torch[:]
    step, _ = training(group)
    graphed = make_graphed_step(step)
    assert losses(graphed) == expected
    assert graphed.graph is not None
    captured = [work for work in group.made_by_torch if work.captured]
    assert len(captured) == 4  # buckets, each of one parameter; replays ask for none
    assert all(work.waits == 1 for work in group.made_by_torch)

    def destroy(_: Any) -> None:
        assert not group.captures

    monkeypatch.setattr(transport.dist, "destroy_process_group", destroy)
    assert len(group.captures) == 1
    group.close()
    with pytest.raises(RuntimeError, match="process group that was destroyed"):
        graphed(minitorch.ones(4, 5, device="cuda"))


def test_a_sum_that_is_waited_for_at_once_is_a_kernel_of_our_own_stream(
    group: Any,
) -> None:
    asked: list[bool] = []

    def begin(_: Any, options: Any) -> Sent | None:
        asked.append(options.asyncOp)
        return Sent() if options.asyncOp else None

    group.handle.allreduce = begin
    x = minitorch.ones(3, device="cuda")
    assert all_reduce(x, group=group) is None and not group.under_way
    work = all_reduce(x, group=group, async_op=True)
    assert work is not None and asked == [False, True]
    work.wait()
    made = CUDAGraph()
    with graph(made):
        all_reduce(x, group=group)
    assert len(group.captures) == 1  # whose graph goes before the group


def test_gradients_of_weights_are_made_in_buckets_at_each_replay(group: Any) -> None:
    found, copies = [], []
    for how in (homeless, lambda model: model):
        step, _ = training(group, how)
        graphed = make_graphed_step(step)
        found.append(losses(graphed))
        assert graphed.graph is not None
        copies.append(graphed.graph.kernels.count("copy_chunks"))
    assert found[0] == found[1]
    assert copies == [4, 2]  # buckets of one parameter, two of them a bias


def test_a_graph_ends_behind_all_that_is_sent_in_it(group: Any) -> None:
    step, model = training(group)
    x = minitorch.ones(4, 5, device="cuda")
    step(x)
    del group.made_by_torch[:]
    whole = DistributedDataParallel(
        model, process_group=group, init_sync=False, bucket_cap_mb=1e-5
    )
    with graph(CUDAGraph()):
        whole(x).sum().backward()  # and nobody looks at a gradient
    works = [work for work in group.made_by_torch if work.captured]
    assert works and all(work.waits == 1 for work in works)


def test_a_capture_that_is_given_up_leaves_nothing_to_wait_for(group: Any) -> None:
    def reading(step: Any) -> tuple[Any, list[str]]:
        refused: list[str] = []
        return make_graphed_step(step, refused.append), refused

    def made() -> Any:
        _, model = training(group)
        whole = DistributedDataParallel(
            model, process_group=group, init_sync=False, bucket_cap_mb=1e-5
        )
        optimizer = optim.AdamW(model.parameters(), 0.1)

        def step(x: minitorch.Tensor) -> minitorch.Tensor:
            optimizer.zero_grad()
            loss = whole(x).square().mean()
            loss.backward()
            loss.item()  # while the last bucket comes
            optimizer.step()
            return loss.detach()

        return step

    expected = losses(made())
    graphed, refused = reading(made())
    assert losses(graphed) == expected
    assert graphed.graph is None
    assert "item() asks" in refused[0]


def test_what_was_left_before_a_capture_is_waited_for_before_it(group: Any) -> None:
    step, model = training(group)
    x = minitorch.ones(4, 5, device="cuda")
    step(x)
    del group.made_by_torch[:]

    def adds_up(x: minitorch.Tensor) -> minitorch.Tensor:
        loss = whole(x).sum()
        loss.backward()
        return loss.detach()

    whole = DistributedDataParallel(
        model, process_group=group, init_sync=False, bucket_cap_mb=25
    )
    for _ in range(3):
        model.zero_grad()
        adds_up(x)
    model.zero_grad()
    graphed = make_graphed_step(adds_up)
    for _ in range(4):
        graphed(x)
    assert graphed.graph is not None
    added = [p.grad.numpy() for p in model.parameters()]
    model.zero_grad()
    adds_up(x)
    for p, grad in zip(model.parameters(), added):
        np.testing.assert_allclose(grad, 4 * p.grad.numpy(), rtol=1e-5)


def test_a_barrier_is_refused(group: Any) -> None:
    with pytest.raises(CaptureError, match=r"barrier\(\) asks"), graph(CUDAGraph()):
        group.barrier()


@pytest.mark.parametrize(
    "backend, options, why",
    [
        ("gloo", {}, "all_reduce by gloo asks"),
        ("nccl", {"find_unused_parameters": True}, "find_unused_parameters asks"),
    ],
)
def test_what_reads_numbers_is_refused_and_goes_on_without_a_graph(
    group: Any, backend: str, options: dict[str, Any], why: str
) -> None:
    group.backend = backend
    plain, _ = training(group, **options)
    expected, refused = losses(plain), []
    step, _ = training(group, **options)
    graphed = make_graphed_step(step, refused.append)
    assert losses(graphed) == expected
    assert graphed.graph is None
    (text,) = refused
    assert why in text


def test_what_is_in_parts_is_refused_before_it_is_gathered() -> None:
    from minitorch.distributed import spawn_threads

    def rank() -> tuple[list[float], list[float], list[str]]:
        found, refused = [], []
        for captured in (False, True):
            minitorch.manual_seed(0)
            model = fully_shard(nn.Linear(5, 3).to("cuda"))
            optimizer = optim.SGD(model.parameters(), 0.1)

            def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            run = make_graphed_step(step, refused.append) if captured else step
            found.append(losses(run))
        return *found, refused  # type: ignore[return-value]

    ((plain, graphed, refused),) = spawn_threads(rank, 1)
    assert plain == graphed
    assert "fully_shard asks for those of a tensor" in refused[0]


@pytest.mark.skipif(SIMULATED, reason="the simulator has no NCCL")
def test_two_gpus_send_in_a_graph_what_they_send_without() -> None:
    if minitorch.cuda.device_count() < 2:
        pytest.skip("it takes two GPUs")
    cuts: list[dict[str, Any]] = [{"dropout": 0.1}, {"zero": 1}, {"zero": 3}]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node=2", str(RANKS), *map(json.dumps, cuts)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
    assert [t["cut"] for t in told] == cuts
    assert all(t["equal"] for t in told), told
    assert [t["graph"] for t in told] == [True, False, False]
