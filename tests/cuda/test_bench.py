"""The benchmark's cases for a GPU, at sizes that the simulator can do."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minitorch
from helpers import SIMULATED
from minitorch import nn
from minitorch.cuda import make_graphed_step
from minitorch.data import DataLoader, TensorDataset

pytest.importorskip("numba_cuda")
pytest.importorskip("torch")
import torch

from minitorch.bench import cases, epoch, gpu_cases, gpu_steps
from minitorch.bench.gpu_harness import compare_hosts
from minitorch.bench.inputs import Case, both, put_inputs_on
from minitorch.bench.report import Limits
from minitorch.bench.run import is_wrong, measure
from minitorch.train import TrainConfig
from tests.cuda.sizes import pick

ATTENTION = "composed", "tiled", "online", "tensor_core", "warpgroup"


@pytest.fixture(autouse=True)
def inputs_on_the_gpu() -> Iterator[None]:
    put_inputs_on("cuda")
    yield
    put_inputs_on("cpu")


def weights(network: Any) -> list[np.ndarray]:
    return [p.detach().cpu().numpy().copy() for p in network.parameters()]


def small_networks() -> tuple[Any, Any]:
    def build(library: Any) -> Any:
        return library.Sequential(
            library.Flatten(), library.Linear(4, 3), library.ReLU(),
            library.Linear(3, 10),
        )  # fmt: skip

    torch.manual_seed(1)
    mine, other = build(nn), build(torch.nn)
    for p, q in zip(mine.parameters(), other.parameters()):
        p.data.copy_(minitorch.tensor(q.detach().numpy()))
    return mine, other


class Kept:
    """Makes one pair of networks, and remembers it."""

    def __init__(self) -> None:
        self.pair: Any = None

    def __call__(self) -> tuple[Any, Any]:
        self.pair = small_networks()
        return self.pair


def test_families() -> None:
    names = [case.name for case in gpu_cases.gpu_cases(["step"])]
    assert len(names) == 6 and "MLP 784-256-128-10, graph" in names
    assert all(len(name) <= 46 for name in names)  # of the printed column
    assert {"tiny", "optim", "step", "epoch"} <= gpu_cases.FAMILIES.keys()
    by_host = list(gpu_cases.gpu_cases(["tiny", "optim", "step", "epoch"]))
    assert all(case.compare is compare_hosts for case in by_host)
    with pytest.raises(ValueError, match="no family 'steps' on the GPU"):
        list(gpu_cases.gpu_cases(["steps"]))


def test_the_sparse_ladder_has_vectors_and_long_rows() -> None:
    found = list(gpu_cases.gpu_ladder("sparse", pick(40, 2048)))
    names = ["row_a_thread", "row_a_warp", "balanced"]
    assert [case.name for case in found] == [
        f"{name}{vector}{rows}"
        for rows in ("", ", long rows")
        for vector in ("", ", a vector")
        for name in names
    ]
    assert not any(is_wrong(case, *case.build()) for case in found)


@pytest.mark.parametrize(
    "case", list(gpu_steps.tiny_cases()), ids=lambda case: case.name
)
def test_small_operations_run(case: Case) -> None:
    ours, theirs = case.build()
    ours(), theirs()


def test_optimizer_steps_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def kept(*shapes: Any, grad: bool) -> Any:
        made.append(both(*shapes, grad=grad))
        return made[-1]

    monkeypatch.setattr(cases, "both", kept)
    shapes = [(3, 2), (5,)]
    for ours, theirs in (
        (minitorch.optim.Adam, torch.optim.Adam),
        (minitorch.optim.AdamW, torch.optim.AdamW),
    ):
        we, they = cases.optimizer_steps(shapes, ours, theirs)
        for _ in range(2):
            we()
            they()
    for mine, others in made:
        for a, b in zip(mine, others):
            np.testing.assert_allclose(a.detach().cpu(), b.detach().cpu(), rtol=1e-5)


def test_training_steps_agree() -> None:
    networks = Kept()
    we, they = gpu_steps.eager_steps(networks, (3, 1, 2, 2))
    before = weights(networks.pair[0])
    for _ in range(3):
        we()
        they()
    for old, a, b in zip(before, *map(weights, networks.pair), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
        assert not np.array_equal(old, a)


def test_our_graph_does_the_same_steps() -> None:
    results = []
    for captured in (False, True):
        mine, _ = small_networks()
        mine = mine.to("cuda")
        adam = minitorch.optim.Adam(mine.parameters())
        step = cases.train_step(mine, adam, nn.functional)
        run = make_graphed_step(step) if captured else step
        for seed in range(3):
            rng = np.random.default_rng(seed)
            x = minitorch.tensor(rng.random((3, 4), dtype=np.float32), device="cuda")
            run(x, minitorch.arange(3, device="cuda"))
        results.append(weights(mine))
    assert all(map(np.array_equal, *results))


def test_an_epoch_of_each() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (2, 28, 28), np.uint8), np.arange(2)
    x = minitorch.tensor(images[:, None] / np.float32(255), device="cuda")
    data = TensorDataset(x.float(), minitorch.tensor(labels, device="cuda"))
    config = TrainConfig(
        "mnist", device="cuda", model="mlp", hidden=2, epochs=1, batch_size=1, lr=1e-4,
        optimizer="adamw",
    )  # fmt: skip
    task: Any = SimpleNamespace(
        train=DataLoader(data), train_data=(images, labels.astype(np.uint8))
    )
    for make in (epoch.our_epoch_on_gpu, epoch.their_epoch_on_gpu):
        assert 0.1 < make(config, task)() < 20  # ln(10) for equal scores


def test_the_hosts_clock() -> None:
    calls: list[str] = []
    build = lambda: (lambda: calls.append("ours"), lambda: calls.append("torch"))
    case = Case("tiny", "nothing", build, compare=compare_hosts)
    (result,) = measure([case], limits=Limits(1.0, 1.0, 1.0, 1.0), seconds=0.0)
    assert result.rounds == 5 and result.ours < 0.001 and result.torch < 0.001
    assert {"ours", "torch"} == set(calls)


@pytest.mark.skipif(SIMULATED, reason="PyTorch's CUDA graphs need a GPU")
def test_graphs_of_both() -> None:
    networks = Kept()
    for fused in (False, True):
        we, they = gpu_steps.graph_steps(networks, (3, 1, 2, 2), fused=fused)
        before = list(map(weights, networks.pair))
        for _ in range(3):
            we()
            they()
        for old, new in zip(before, map(weights, networks.pair), strict=True):
            assert not any(map(np.array_equal, old, new))


def test_attention_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_cases, "HEADS", (1, 2, 12, 8))
    found = [*gpu_cases.attention_cases(), *gpu_cases.gpu_ladder("attention", 12)]
    from cuda_ops.attention.attention import attention_warpgroup, runs_here

    names = ATTENTION if runs_here(attention_warpgroup) else ATTENTION[:-1]
    assert [case.name for case in found[4:]] == [f"attention_{x}" for x in names]
    for case in found:
        ours, theirs = case.build()
        result, expected = ours(), theirs()
        assert case.agree is None or case.agree(result, expected), case.name
    minitorch.set_float32_matmul_precision("highest")
    torch.set_float32_matmul_precision("highest")
