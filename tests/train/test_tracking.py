"""What a run measures is kept, in lines of JSON and by trackers, which read it back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from minitorch.cli.app import app
from minitorch.train import (
    ConfigError,
    Interrupted,
    Result,
    TrainConfig,
    load_checkpoint,
    train,
)
from minitorch.train.checkpoint import LAST
from minitorch.train.session import Session
from minitorch.train.tracking import METRICS, TRACKERS, read_metrics

SMALL = TrainConfig("points", limit=100, epochs=3, quiet=True, plots=False)
EPOCH = {"epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy"}


def run(out: Path, **choices: Any) -> Result:
    return train(replace(SMALL, out=out, **choices))


def without_clocks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    clocks = {"time", "seconds", "examples_per_second"}
    return [{k: v for k, v in row.items() if k not in clocks} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("whole") / "run").folder


def test_every_run_writes_its_numbers(whole: Path) -> None:
    rows = read_metrics(whole / METRICS)
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 13))
    epochs = [row for row in rows if "test_loss" in row]
    assert [row["step"] for row in epochs] == [4, 8, 12] and set(epochs[0]) >= EPOCH
    kept = json.loads((whole / "metrics.json").read_text())["epochs"]
    for row, other in zip(epochs, kept):
        assert {k: row[k] for k in other} == other


def test_a_resumed_run_measures_again_what_its_checkpoint_lacks(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped after step 8, whose lines and half a line more are there."""
    stop = Session.stop_if_asked

    def after_two_epochs(session: Session) -> None:
        session.stop_signal = 2 if len(session.history) == 2 else None
        stop(session)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "stop_if_asked", after_two_epochs)
        with pytest.raises(Interrupted):
            run(tmp_path / "a")
    with open(tmp_path / "a" / METRICS, "a") as file:
        file.write('{"step": 9, "loss": 0.5}\n{"step": 10, "lo')
    settings = json.loads((tmp_path / "a" / "config.json").read_text())
    assert settings["dataset"] == "spiral"
    run(tmp_path / "b", resume=tmp_path / "a")
    again, once = (read_metrics(f / METRICS) for f in (tmp_path / "b", whole))
    assert without_clocks(again) == without_clocks(once)


@pytest.mark.extras
def test_tensorboard_reads_what_is_written(whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="pip install -e '.[tracking]'")
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="pip install -e '.[tracking]'",
    )
    result = run(tmp_path / "run", track="tensorboard", plots=True)
    place, every = str(result.folder / "tensorboard"), {"histograms": 0}
    found = reader.EventAccumulator(place, every).Reload()
    rows = read_metrics(result.folder / METRICS)
    for name in ("loss", "test_accuracy", "lr"):
        want = [(row["step"], row[name]) for row in rows if name in row]
        got = [(event.step, event.value) for event in found.Scalars(name)]
        np.testing.assert_allclose(got, want, rtol=1e-6)
    parameters = dict(result.model.named_parameters())
    for kind in ("weights", "gradients"):
        for name, parameter in parameters.items():
            events = found.Histograms(f"{kind}/{name}")
            assert [event.step for event in events] == [4, 8, 12]
            value = parameter if kind == "weights" else parameter.grad
            last = events[-1].histogram_value
            assert last.num == value.numel()
            assert last.sum == pytest.approx(float(value.sum().item()), abs=1e-4)
    assert found.Images("curves")[0].encoded_image_string.startswith(b"\x89PNG")
    assert "boundary" in found.Tags()["images"]
    one, two = (load_checkpoint(f / LAST)["model"] for f in (whole, result.folder))
    assert all(np.array_equal(one[k].numpy(), two[k].numpy()) for k in one)


@pytest.mark.extras
def test_wandb_keeps_a_run_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="pip install -e '.[tracking]'")
    folder = tracked_elsewhere(tmp_path / "run", "wandb", {"WANDB_MODE": "offline"})
    (kept,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = kept.read_bytes()
    assert all(name in content for name in (b"test_accuracy", b"weights/", b"curves"))


@pytest.mark.extras
def test_trackio_keeps_a_run_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="pip install -e '.[tracking]'")
    place = {"TRACKIO_DIR": str(tmp_path / "trackio")}
    folder = tracked_elsewhere(tmp_path / "run", "trackio", place)
    ask = (
        "from trackio.sqlite_storage import SQLiteStorage as S; import json; "
        "rows = S.get_logs('minitorch', 'run'); "
        "print(json.dumps([row.get('test_loss') for row in rows]))"
    )
    read = subprocess.run(
        [sys.executable, "-c", ask], env={**os.environ, **place}, capture_output=True
    )
    assert read.returncode == 0, read.stderr
    kept = [loss for loss in json.loads(read.stdout) if loss is not None]
    rows = read_metrics(folder / METRICS)
    assert kept == [row["test_loss"] for row in rows if "test_loss" in row]


def tracked_elsewhere(out: Path, name: str, place: dict[str, str]) -> Path:
    """A run in a process of its own, whose tracker ends with it; prints one line."""
    command = [sys.executable, "-m", "minitorch", "train", "points", "--points", "100"]
    done = subprocess.run(
        [*command, "--epochs", "3", "--quiet", "--track", name, "--out", str(out)],
        env={**os.environ, **place, "NUMBA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    return out


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitorch.train.tracking.find_spec", lambda name: None)
    for name in TRACKERS:
        with pytest.raises(ConfigError, match=rf"track: {name} needs .*pip install \w"):
            run(tmp_path / "run", track=name)
    with pytest.raises(ConfigError, match="no 'mlflow'; choose from tensorboard"):
        run(tmp_path / "run", track="mlflow")
    assert not (tmp_path / "run").exists()


def test_runs_are_compared(whole: Path, tmp_path: Path) -> None:
    run(tmp_path / "runs" / "slow", lr=0.001)
    listed = invoke(tmp_path / "runs", whole, "--plot", tmp_path / "all.png")
    assert listed.exit_code == 0, listed.output
    head = listed.output.split("─")[0]
    assert "lr" in head and "seed" not in head and "test_loss" in head
    text = "".join(listed.output.split())
    for folder in (tmp_path / "runs" / "slow", whole):
        values = [row["test_accuracy"] for row in read_metrics(folder / METRICS)[-1:]]
        assert f"{values[0]:.4f}(" in text
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    odd = invoke(whole, "--plot", tmp_path / "x.png", "--metric", "speed")
    assert odd.exit_code == 1 and "no run has measured 'speed'" in odd.output
    with open(tmp_path / "runs" / "slow" / METRICS, "ab") as file:
        file.write(b'{"step": 9, "loss": \xff')
    (tmp_path / "runs" / "slow" / "config.json").write_text("{")
    broken = invoke(tmp_path / "runs", whole)
    assert broken.exit_code == 0 and "config.json is no JSON" in broken.output
    assert "1 of" in broken.output and "leaves half a line" in broken.output
    empty = invoke(tmp_path / "nowhere")
    assert empty.exit_code == 1 and "has no run in it" in empty.output


ODD = {
    "other/metrics.jsonl": '{"step": 7, "val_loss": 1.5}\n{"step": 8, "val_loss": 2',
    "other/config.json": json.dumps(
        {"recipe": "points", **{f"setting{i}": i for i in range(20)}, "parts": {"a": 1}}
    ),
    "broken/metrics.jsonl": '{"step": 4, "val_loss": null, "test_loss": "low"}\n[4]\n',
    "broken/config.json": '{"recipe": ',
    "empty/metrics.jsonl": "",
}


def test_odd_runs_are_listed_beside_others(whole: Path, tmp_path: Path) -> None:
    """Settings that are broken, other, or none; numbers that are none; half a line."""
    for name, text in ODD.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    listed = invoke(tmp_path, whole)
    assert listed.exit_code == 0, listed.output
    assert "broken/config.json is no JSON" in listed.output
    words = listed.output.split()
    assert {"setting19=19", "points", "settings"} <= set(words)
    assert "parts" not in listed.output  # what is made of others
    assert "1.5000" in words and "(1.5000)" in words and "2.0000" not in words
    nothing = invoke(tmp_path / "empty", "--plot", tmp_path / "x.png")
    assert nothing.exit_code == 1 and "they have measured nothing" in nothing.output


def test_runs_fit_into_a_terminal(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a run and each number stay in one piece, in 80 columns."""
    for name in ("a", "b"):
        folder = tmp_path / f"points-20261129-00135{name}"
        folder.mkdir()
        folder.joinpath(METRICS).write_bytes((whole / METRICS).read_bytes())
        settings = {"recipe": "points", "hidden": name, "epochs": 3, "lr": name}
        folder.joinpath("config.json").write_text(json.dumps(settings))
    monkeypatch.chdir(tmp_path)
    listed = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["runs", "."])
    assert max(map(len, listed.output.splitlines())) <= 80
    assert {"points-20261129-00135b", "hidden=a", "lr=b"} <= set(listed.output.split())
    assert "…" not in listed.output
    # A name that fits into no line takes several; brackets are part of it.
    (tmp_path / "points-20261129-00135b").rename(tmp_path / f"{'long' * 25}[red]")
    listed = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["runs", "."])
    assert "…" not in listed.output and "(best)" in listed.output
    pieces = "".join(line[1:].split(" ")[0] for line in listed.output.splitlines())
    assert f"{'long' * 25}[red]" in pieces


def invoke(*arguments: Any) -> Any:
    runner = CliRunner(env={"COLUMNS": "300"})
    return runner.invoke(app, ["runs", *map(str, arguments)])
