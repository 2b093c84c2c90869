"""A run that was interrupted, at any moment and in any way, and resumed ends with the
weights of one that was not, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from minitorch.train import (
    CheckpointError,
    ConfigError,
    Interrupted,
    TrainConfig,
    load_checkpoint,
    save_checkpoint,
    train,
)
from minitorch.train.session import Session

LAST = "last.safetensors"


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)


def assert_same_run(a: Path, b: Path) -> None:
    """All tensors (weights and the optimizer's) are the same bits, and so is all else
    but the time that it took."""
    first, second = tensors_of(a / LAST), tensors_of(b / LAST)
    assert first.keys() == second.keys() and len(first) > 0
    for name in first:
        assert first[name].tobytes() == second[name].tobytes(), name
    one, two = load_checkpoint(a / LAST), load_checkpoint(b / LAST)
    for key in ("step", "generator", "loader", "scheduler", "trace"):
        assert one[key] == two[key], key
    for x, y in zip(one["history"], two["history"], strict=True):
        for key in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
            assert x[key] == y[key], key


# ------------------------------------------------------------------------- the file


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
keys = st.text(max_size=8) | st.integers(-3, 100)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


@given(tree=trees)
def test_what_is_saved_comes_back(tree: Any, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "tree.safetensors"
    save_checkpoint(path, {"tree": tree})
    assert load_checkpoint(path) == {"tree": tree}


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 4), (1025,)])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int64", "int32", "int8", "bool"]
)
def test_tensors_come_back(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    path = tmp_path / "t.safetensors"
    save_checkpoint(path, {"a": [{3: minitorch.tensor(array)}]})
    back = load_checkpoint(path)["a"][0][3].numpy()
    assert back.dtype == array.dtype and back.shape == array.shape
    assert np.array_equal(back, array)
    assert list(tensors_of(path)) == ["a.0.3"]


def test_views_are_saved_as_they_look(tmp_path: Path) -> None:
    base = minitorch.arange(24).reshape(4, 6)
    view = base.transpose(0, 1)[1::2]
    save_checkpoint(tmp_path / "v", {"view": view})
    assert np.array_equal(load_checkpoint(tmp_path / "v")["view"].numpy(), view.numpy())


def test_what_cannot_be_saved_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / LAST
    save_checkpoint(path, {"x": 1})
    with pytest.raises(TypeError, match=r"a\.b is a set"):
        save_checkpoint(path, {"a": {"b": {1, 2}}})
    assert load_checkpoint(path) == {"x": 1}
    assert [file.name for file in tmp_path.iterdir()] == [LAST]


def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / LAST
    save_checkpoint(path, {"x": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, {"x": 2})
    assert load_checkpoint(path) == {"x": 1}
    assert [file.name for file in tmp_path.iterdir()] == [LAST]


@pytest.mark.parametrize("keep", [0, 7, 60, -1])
def test_a_damaged_file_is_named(keep: int, tmp_path: Path) -> None:
    path = tmp_path / LAST
    save_checkpoint(path, {"x": minitorch.ones(5)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=str(path)):
        load_checkpoint(path)


def test_other_safetensors_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"x": np.ones(3)}, tmp_path / "x")
    with pytest.raises(CheckpointError, match="not written by minitorch"):
        load_checkpoint(tmp_path / "x")


# ------------------------------------------------------ interrupted in this process

DIGITS = TrainConfig(
    recipe="mnist",
    dataset="drawn",
    limit=200,
    batch_size=64,
    epochs=2,
    quiet=True,
    plots=False,
)
POINTS = TrainConfig(
    recipe="points", limit=40, batch_size=16, epochs=3, quiet=True, plots=False
)


def with_fields(config: TrainConfig, **fields: Any) -> TrainConfig:
    from dataclasses import replace

    return replace(config, **fields)


def stop_in_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The next run acts as if Ctrl-C was pressed during this step."""
    original = Session.after_step

    def after_step(self: Session, *args: Any) -> None:
        if self.step + 1 == number:
            self.stop_signal = signal.SIGINT
        original(self, *args)

    monkeypatch.setattr(Session, "after_step", after_step)


@pytest.mark.parametrize(
    "config, optimizer",
    [
        (DIGITS, "adamw"),
        (DIGITS, "sgd"),
        (POINTS, "adamw"),
        (POINTS, "sgd"),
        (POINTS, "schedule-free"),
    ],
    ids=lambda x: x.recipe if isinstance(x, TrainConfig) else x,
)
def test_every_step_can_be_the_last(
    config: TrainConfig, optimizer: str, tmp_path: Path
) -> None:
    """The digits' network has dropout, so this is about the generator, too."""
    slow = config.recipe == "mnist"
    config = with_fields(config, optimizer=optimizer)
    whole = tmp_path / "whole"
    train(with_fields(config, out=whole))
    steps = load_checkpoint(whole / LAST)["step"]
    assert steps in (8, 9)
    # The digits' steps around the end of an epoch; all of the points', which are quick.
    numbers = (1, 4, 5) if slow else range(1, steps + 1)
    for number in numbers:
        out = tmp_path / f"stopped-{number}"
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
            stop_in_step(patch, number)
            train(with_fields(config, out=out))
        assert load_checkpoint(out / LAST)["step"] == number
        minitorch.manual_seed(12345)  # nothing may depend on what this process did
        train(TrainConfig(recipe=config.recipe, resume=out, quiet=True, plots=False))
        assert_same_run(whole, out)


def test_interrupted_again_and_again(tmp_path: Path) -> None:
    train(with_fields(POINTS, out=tmp_path / "whole"))
    out = tmp_path / "stopped"
    config = with_fields(POINTS, out=out)
    for number in range(1, 10):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
            stop_in_step(patch, number)
            train(config)
        config = with_fields(POINTS, resume=out)
    train(config)
    assert_same_run(tmp_path / "whole", out)


def test_a_finished_run_can_be_resumed(tmp_path: Path) -> None:
    first = train(with_fields(POINTS, out=tmp_path))
    before = (tmp_path / LAST).read_bytes()
    again = train(TrainConfig(recipe="points", resume=tmp_path, quiet=True))
    assert (tmp_path / LAST).read_bytes() == before
    assert again.test_accuracy == first.test_accuracy
    assert len(again.files) == 2


def test_more_epochs_go_on_from_the_last(tmp_path: Path) -> None:
    train(with_fields(POINTS, out=tmp_path))
    longer = train(with_fields(POINTS, resume=tmp_path, epochs=5))
    assert [row.epoch for row in longer.history] == [1, 2, 3, 4, 5]


def test_resume_elsewhere_leaves_the_first_folder_alone(tmp_path: Path) -> None:
    train(with_fields(POINTS, out=tmp_path / "a"))
    before = {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()}
    config = with_fields(POINTS, resume=tmp_path / "a" / LAST, out=tmp_path / "b")
    train(with_fields(config, epochs=4))
    assert {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()} == before
    assert load_checkpoint(tmp_path / "b" / LAST)["step"] == 12


@pytest.mark.parametrize(
    "field, value",
    [
        ("model", "linear"),
        ("dataset", "circle"),
        ("optimizer", "sgd"),
        ("batch_size", 8),
        ("seed", 1),
        ("limit", 41),
        ("lr", 0.5),
    ],
)
def test_another_run_cannot_be_resumed(field: str, value: Any, tmp_path: Path) -> None:
    train(with_fields(POINTS, out=tmp_path))
    config = with_fields(POINTS, resume=tmp_path, **{field: value})
    with pytest.raises(ConfigError, match=r"was trained with .*leave the option out"):
        train(config)


def test_another_recipe_cannot_be_resumed(tmp_path: Path) -> None:
    train(with_fields(POINTS, out=tmp_path))
    with pytest.raises(ConfigError, match="minitorch train points"):
        train(with_fields(DIGITS, resume=tmp_path))


@pytest.mark.parametrize("missing", ["nowhere", "."])
def test_nothing_to_resume(missing: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no (file|last)"):
        train(with_fields(POINTS, resume=tmp_path / missing))


# ---------------------------------------------------- interrupted by the system

LONG = [
    "train", "points", "--limit", "60", "--batch-size", "6", "--epochs", "12",
    "--checkpoint-steps", "1", "--no-plots",
]  # fmt: skip


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "minitorch.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NUMBA_NUM_THREADS": "1"},
    )


def finish(*arguments: str) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors


def wait_for_step(path: Path, least: int, process: subprocess.Popen[str]) -> None:
    for _ in range(24_000):
        if path.exists() and load_checkpoint(path)["step"] >= least:
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    raise AssertionError("no checkpoint within two minutes")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    finish(*LONG, "--out", str(out))
    return out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_killed_twice(whole_run: Path, tmp_path: Path) -> None:
    process = start(*LONG, "--out", str(tmp_path))
    for step in (7, 53):
        wait_for_step(tmp_path / LAST, step, process)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        process = start(*LONG, "--resume", str(tmp_path))
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert "resuming after step" in output
    assert_same_run(whole_run, tmp_path)
    assert not list(tmp_path.glob(".*"))  # what the kill left half written is gone


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_signal(signum: int, whole_run: Path, tmp_path: Path) -> None:
    arguments = [*LONG, "--checkpoint-steps", "20"]
    process = start(*arguments, "--out", str(tmp_path))
    wait_for_step(tmp_path / LAST, 20, process)
    process.send_signal(signum)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert f"minitorch train points --resume {tmp_path}" in errors
    assert "Traceback" not in errors
    finish("train", "points", "--no-plots", "--resume", str(tmp_path))
    assert_same_run(whole_run, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stopped_before_training(signum: int, tmp_path: Path) -> None:
    """While the first kernel is compiled, say: told in one line, nothing half made."""
    code = (
        "import os, minitorch.train.recipes as recipes\n"
        f"recipes._session = lambda *a: os.kill(os.getpid(), {int(signum)}) or "
        "__import__('time').sleep(60)\n"
        "from minitorch.cli import main\n"
        "main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "train", "points", "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 128 + signum, run.stderr
    assert "stopped at once" in run.stderr and "Traceback" not in run.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no resource limits")
def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    import resource

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    run = subprocess.run(
        [sys.executable, "-m", "minitorch.cli", *LONG, "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=120, preexec_fn=small_files,
    )  # fmt: skip
    assert run.returncode == 1
    told = run.stderr.strip().splitlines()
    assert len(told) == 2 and "(--debug shows" in told[1], run.stderr
    assert str(tmp_path / LAST) in told[0] and "after 10,000 of " in told[0]
    assert not list(tmp_path.iterdir())
