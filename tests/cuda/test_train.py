"""`minitorch train --device cuda`: with and without a graph the same; errors; data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitorch
from helpers import rows_of_trace
from minitorch.data import TensorDataset
from minitorch.train import (
    DeviceFailed,
    Result,
    TrainConfig,
    recipes,
    running,
    tasks,
    train,
)
from minitorch.train.checkpoint import find_checkpoint, load_checkpoint
from minitorch.train.session import Results

pytest.importorskip("numba_cuda")

SMALL = TrainConfig(
    recipe="xor", device="cuda", limit=20, batch_size=8, hidden=4, epochs=2,
    quiet=True, plots=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def few_test_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TEST_POINTS", 10)


def run(out: Path, **choices: Any) -> Result:
    return train(replace(SMALL, out=out, **choices))


def outcome(result: Result) -> Any:
    weights = [p.detach().cpu().numpy().tobytes() for p in result.model.parameters()]
    rows = [(e.train_loss, e.train_accuracy, e.test_loss) for e in result.history]
    return weights, rows


def test_with_and_without_a_graph_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make = running.make_graphed_step

    def remembered(*args: Any) -> Any:
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(running, "make_graphed_step", remembered)
    plain = outcome(run(tmp_path / "plain", graph=False))
    assert not made
    assert outcome(run(tmp_path / "graph")) == plain
    assert len(made) == 1 and made[0].graph is not None
    on_cpu = outcome(run(tmp_path / "cpu", device="cpu"))
    np.testing.assert_allclose(plain[1], on_cpu[1], rtol=1e-4)


def test_a_profiled_run_captures_nothing_and_learns_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = outcome(run(tmp_path / "plain"))
    monkeypatch.setattr(running, "make_graphed_step", None)
    assert outcome(run(tmp_path / "run", profile=True, epochs=2)) == plain
    rows = rows_of_trace(tmp_path / "run" / "trace.json")
    names = [span["name"] for spans in rows.values() for span in spans]
    assert names.count("step") == 3  # of six
    assert names.count("adam_step") >= 3


def test_a_device_error_leaves_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuda_ops.runtime.device import CudaError

    real, steps = recipes.train_step, []

    def failing(*args: Any) -> Any:
        steps.append(1)
        if len(steps) == 3:
            raise CudaError("kernel add_flat[1, 32] failed: an illegal address")
        return real(*args)

    monkeypatch.setattr(recipes, "train_step", failing)
    out = tmp_path / "run"
    with pytest.raises(DeviceFailed) as caught:
        run(out, checkpoint_steps=1, graph=False)
    message = str(caught.value)
    assert "kernel add_flat" in message and f"--resume {out}" in message
    assert load_checkpoint(find_checkpoint(out))["step"] == 2
    monkeypatch.setattr(recipes, "train_step", real)
    resumed = train(replace(SMALL, resume=out, out=out))
    assert outcome(resumed) == outcome(run(tmp_path / "whole"))


def test_examples_are_kept_on_the_device() -> None:
    config = recipes.fill_in(SMALL)
    task = tasks.points_task(config)
    assert isinstance(task.train.dataset, TensorDataset)
    reference = tasks.points_task(replace(config, device="cpu"))
    for (x, y), (a, b) in zip(task.train, reference.train, strict=True):
        assert x.device == y.device == "cuda"
        assert np.array_equal(x.cpu().numpy(), a.numpy())
        assert np.array_equal(y.cpu().numpy(), b.numpy())


def test_results_outlive_the_tensors_of_a_step() -> None:
    results = Results()
    loss = minitorch.zeros((), device="cuda")
    right = minitorch.zeros((), dtype=minitorch.int64, device="cuda")
    for i in range(3):
        loss.fill_(float(i))
        right.fill_(10 * i)
        results.add(i, 0.1, 4, loss, right)
    assert results.read() == [(i, 0.1, 4, float(i), 10 * i) for i in range(3)]
    assert results.read() == []
