"""The recipes reach what they promise, and leave behind what they should."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from minitorch.train import Diverged, Result, TrainConfig, load_checkpoint, train
from minitorch.train.recipes import DEFAULTS, fill_in
from minitorch.train.tasks import normalize_digits

PNG = b"\x89PNG\r\n\x1a\n"


def run(recipe: str, out: Path, **choices: object) -> Result:
    config = TrainConfig(recipe=recipe, out=out, quiet=True, **choices)  # type: ignore
    return train(config)


@pytest.mark.parametrize("seed", [0, 1])
def test_xor_is_learnt(seed: int, tmp_path: Path) -> None:
    result = run("xor", tmp_path, seed=seed, plots=False)
    assert result.train_accuracy == 1.0
    assert result.test_accuracy == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 20))
def test_xor_is_learnt_from_every_seed(seed: int, tmp_path: Path) -> None:
    result = run("xor", tmp_path, seed=seed, plots=False)
    assert result.train_accuracy == 1.0
    assert result.test_accuracy == 1.0


def test_xor_is_beyond_a_linear_model(tmp_path: Path) -> None:
    result = run("xor", tmp_path, model="linear", plots=False)
    assert result.test_accuracy < 0.8


def test_xor_points_keep_away_from_the_borders() -> None:
    from minitorch.train.tasks import XOR_GAP, xor_with_gap

    points = xor_with_gap(1400, seed=3)
    assert points.x.shape == (1400, 2)
    assert np.abs(points.x - 0.5).min() >= XOR_GAP
    assert np.array_equal(points.y, (points.x[:, 0] < 0.5) != (points.x[:, 1] < 0.5))


def test_spiral_is_learnt(tmp_path: Path) -> None:
    result = run("points", tmp_path, plots=False)
    assert result.config.dataset == "spiral"
    assert result.test_accuracy >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["simple", "diagonal", "split", "xor", "circle"])
def test_points_are_learnt(dataset: str, tmp_path: Path) -> None:
    result = run("points", tmp_path, dataset=dataset, plots=False)
    assert result.test_accuracy >= 0.97


def test_test_points_are_not_training_points() -> None:
    from minitorch.train.tasks import points_task

    task = points_task(fill_in(TrainConfig(recipe="points", limit=50)))
    train_set = {tuple(row) for row in task.train_data[0].tolist()}
    assert train_set.isdisjoint(tuple(row) for row in task.test_data[0].tolist())


def test_points_files(tmp_path: Path) -> None:
    result = run("points", tmp_path, limit=60, epochs=3)
    assert {file.name for file in result.files} == {"curves.png", "boundary.png"}
    for file in result.files:
        assert file.read_bytes().startswith(PNG)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["complete"] is True
    assert [row["epoch"] for row in metrics["epochs"]] == [1, 2, 3]
    assert metrics["test_accuracy"] == result.test_accuracy
    assert metrics["steps"] == 9  # 60 points, 25 in a step
    assert 0 < metrics["seconds_to_first_step"] < 600
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dataset"] == "spiral" and config["limit"] == 60
    for name in ("last", "best"):
        assert load_checkpoint(tmp_path / f"{name}.safetensors")["step"] > 0
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("model", ["cnn", "lenet", "mlp"])
def test_digits_files_and_name(model: str, tmp_path: Path) -> None:
    result = run(
        "mnist", tmp_path, dataset="drawn", model=model, limit=640, epochs=1,
        batch_size=32, plots=model == "cnn",
    )  # fmt: skip
    assert result.source == "drawn"
    assert "drawn digits" in result.summary() and "MNIST" not in result.summary()
    assert result.test.probabilities.shape == (2000, 10)
    assert result.test_accuracy > 0.3  # ten times that of a wild guess is 1.0
    if model == "cnn":
        names = {"curves.png", "confusion.png", "mistakes.png"}
        assert {file.name for file in result.files} == names
        assert all(file.read_bytes().startswith(PNG) for file in result.files)


def test_digits_get_the_mean_and_spread_of_mnist() -> None:
    bytes_ = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    expected = (bytes_[:, None] / 255 - 0.1307) / 0.3081
    made = normalize_digits(bytes_)
    assert made.dtype == np.float32 and made.shape == (1, 1, 16, 16)
    np.testing.assert_allclose(made, expected, atol=1e-6)


def test_a_second_run_keeps_the_first(tmp_path: Path) -> None:
    first = run("points", tmp_path, limit=50, epochs=1, plots=False)
    run("points", tmp_path, limit=50, epochs=1, seed=7, plots=False)
    kept = load_checkpoint(tmp_path / "previous-1" / "last.safetensors")
    assert kept["config"]["seed"] == first.config.seed == 0
    assert load_checkpoint(tmp_path / "last.safetensors")["config"]["seed"] == 7


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    weights = []
    for name in ("a", "b"):
        result = run("points", tmp_path / name, limit=50, epochs=2, plots=False)
        state = result.model.state_dict().values()
        weights.append([w.detach().numpy().copy() for w in state])
    assert all(np.array_equal(a, b) for a, b in zip(*weights))


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "schedule-free"])
def test_optimizers(optimizer: str, tmp_path: Path) -> None:
    result = run("xor", tmp_path, optimizer=optimizer, plots=False, epochs=20)
    assert result.test_accuracy > 0.95


def test_divergence_is_explained_and_keeps_a_good_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"step \d+.*learning rate.*--lr") as caught:
        run("points", tmp_path, optimizer="sgd", lr=1e18, checkpoint_steps=1)
    assert "last.safetensors" in str(caught.value)
    state = load_checkpoint(tmp_path / "last.safetensors")
    assert all(np.isfinite(w.numpy()).all() for w in state["model"].values())


def test_defaults_are_complete() -> None:
    for recipe in DEFAULTS:
        config = fill_in(TrainConfig(recipe=recipe))
        for option in ("model", "epochs", "batch_size", "lr", "optimizer", "seed"):
            assert getattr(config, option) is not None, option


MNIST = os.environ.get("MINITORCH_DATA")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(MNIST is None, reason="needs MNIST: set MINITORCH_DATA")
@pytest.mark.parametrize("epochs, least", [(1, 0.98), (5, 0.99)])
def test_mnist(epochs: int, least: float, tmp_path: Path) -> None:
    import numba

    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    result = run("mnist", tmp_path, epochs=epochs, data_dir=MNIST)
    assert result.source == "mnist" and len(result.history) == epochs
    assert result.test_accuracy >= least
