"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import rows_of_trace
from minitorch import __version__
from minitorch.cli.app import app
from minitorch.train.recipes import COMMON, DEFAULTS, HIDDEN, fill_in

QUICK = ["--limit", "40", "--epochs", "2", "--no-plots"]


def invoke(*arguments: Any) -> Any:
    # A wide terminal, so that messages are not cut into lines.
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments])


def in_a_process(*arguments: Any, **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "minitorch.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "NUMBA_NUM_THREADS": "1", **environment},
    )


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0 and result.output.strip() == f"minitorch {__version__}"
    command = [sys.executable, "-m", "minitorch", "--version"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout == result.output, run.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["train"], ["doctor"], ["sample"], ["train", "mnist"]]
)
def test_help(arguments: list[str]) -> None:
    result = invoke(*arguments, "--help")
    assert result.exit_code == 0 and "Usage" in result.output


@pytest.mark.parametrize("recipe", ["xor", "points", "mnist"])
def test_help_shows_the_defaults_that_hold(recipe: str) -> None:
    text = invoke("train", recipe, "--help").output
    shown = dict(re.findall(r"--([a-z-]+)\b[^\n]*?\[default: \(?([^)\]]+)\)?\]", text))
    config = fill_in(__import__("minitorch.train").train.TrainConfig(recipe=recipe))
    expected = {**DEFAULTS[recipe], **COMMON, "model": config.model, "lr": config.lr}
    expected["hidden"] = HIDDEN[recipe]
    for option in ("model", "epochs", "batch-size", "lr", "optimizer", "seed"):
        assert shown[option] == str(expected[option.replace("-", "_")]), option
    assert shown["hidden"] == str(expected["hidden"])
    if recipe != "mnist":
        assert shown["limit"] == str(expected["limit"])


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['minitorch', 'train', 'mnist', '--help']\n"
        "from minitorch.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numba', 'matplotlib', 'torch') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.splitlines()[-1] == "[]", run.stdout + run.stderr


# ------------------------------------------------------------------------- training


def test_a_pipe_gets_plain_lines(tmp_path: Path) -> None:
    run = in_a_process("train", "points", *QUICK, "--out", tmp_path)
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout + run.stderr and "\r" not in run.stdout
    lines = run.stdout.splitlines()
    assert lines[0].startswith("epoch 1/2  loss ")
    assert lines[1].startswith("epoch 2/2  loss ")
    assert any("test acc" in line and "examples/s" in line for line in lines)
    assert re.fullmatch(
        r"spiral: test accuracy [\d.]+% \([\d,]+ of 1,000\), training accuracy "
        r"[\d.]+%, after 2 epochs; files in .*",
        lines[-1],
    )
    assert max(len(line) for line in lines[2:-1]) <= 80


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_terminal_gets_a_progress_bar(tmp_path: Path) -> None:
    import pty

    code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    assert pty  # this test runs the command inside a pseudo-terminal
    command = [sys.executable, "-m", "minitorch.cli", "train", "points", *QUICK]
    run = subprocess.run(
        [sys.executable, "-c", code, *command, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "NUMBA_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\x1b[" in run.stdout
    assert "examples/s" in run.stdout and "epoch 2/2" in run.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_reader_that_has_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "minitorch.cli", "status"]
    run = subprocess.run(
        command,
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    os.close(writer)
    assert run.stderr == b""


def test_quiet_prints_one_line(tmp_path: Path) -> None:
    result = invoke("train", "xor", *QUICK, "--quiet", "--out", tmp_path)
    assert result.exit_code == 0
    assert len(result.output.strip().splitlines()) == 1


FEW = {
    "xor": [],
    "points": ["--dataset", "circle"],
    "mnist": ["--dataset", "drawn", "--model", "mlp"],
}


@pytest.mark.parametrize("recipe", FEW)
def test_profile_writes_a_table_and_a_trace(recipe: str, tmp_path: Path) -> None:
    few = ["--batch-size", 8, *QUICK, *FEW[recipe]]
    result = invoke("train", recipe, *few, "--profile", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    table = lines[lines.index("5 steps, after 3 others") :]
    assert table[1].split() == ["Name", *"Calls Self CPU CPU total CPU each".split()]
    assert table[17].startswith("Self CPU time total: ")  # after the first 15 rows
    assert f"wrote {tmp_path / 'run' / 'trace.json'}; open it at" in result.output
    rows = rows_of_trace(tmp_path / "run" / "trace.json")
    names = [span["name"] for spans in rows.values() for span in spans]
    assert names.count("step") == names.count("AdamW.step") == 5
    assert names.count("LinearBackward") == 15
    assert set(names) >= {"CrossEntropy", "cross_entropy_backward", "adam_step"}
    plain = invoke("train", recipe, *few, "--quiet", "--out", tmp_path / "plain")
    last = plain.output.partition(";")[0]
    assert result.output.splitlines()[-1].startswith(last)
    assert not (tmp_path / "plain" / "trace.json").exists()


def test_a_short_run_profiles_what_there_is(tmp_path: Path) -> None:
    few = ["train", "xor", "--limit", 40, "--no-plots", "--profile", "--out", tmp_path]
    text = invoke(*few, "--batch-size", 8, "--epochs", 1).output
    assert "2 steps, after 3 others" in text
    assert (tmp_path / "trace.json").exists()
    text = invoke(*few, "--batch-size", 20, "--epochs", 1).output
    assert "nothing was profiled: the run had no more than 3 steps" in text
    assert not (tmp_path / "trace.json").exists()  # put aside
    text = invoke(*few, "--quiet", "--batch-size", 8, "--epochs", 2).output
    assert len(text.splitlines()) == 1 and (tmp_path / "trace.json").exists()


def test_resume_from_the_command_line(tmp_path: Path) -> None:
    assert invoke("train", "points", *QUICK, "--out", tmp_path).exit_code == 0
    result = invoke("train", "points", "--resume", tmp_path, "--no-plots")
    assert result.exit_code == 0
    assert "all epochs are done already" in result.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--device", "gpu"], r"--device: there is no 'gpu'; choose from .*cpu"),
        (["--model", "vgg"], r"--model: there is no 'vgg'; choose from mlp, linear"),
        (["--optimizer", "lion"], r"--optimizer: .*adamw, adam, sgd"),
        (["--dataset", "rings"], r"--dataset: .*simple, diagonal, split, xor, circle"),
        (["--epochs", "0"], r"--epochs: got 0; expected a whole number, 1 or more"),
        (["--epochs", "-3"], r"--epochs: got -3"),
        (["--batch-size", "0"], r"--batch-size: got 0"),
        (["--lr", "-1"], r"--lr: got -1.0; expected a number above 0"),
        (["--lr", "nan"], r"--lr: got nan"),
        (["--limit", "0"], r"--limit: got 0"),
        (["--seed", "-1"], r"--seed: got -1"),
        (["--hidden", "8", "--model", "linear"], r"--hidden: .*'linear' has no hidden"),
        (["--checkpoint-every", "-1"], r"--checkpoint-every: got -1"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = invoke("train", "points", "--out", out, *arguments)
    assert result.exit_code == 2
    assert re.search(message, result.output), result.output
    assert "Traceback" not in result.output
    assert not out.exists()


@pytest.mark.parametrize("value", ["many", "1.5", ""])
def test_not_a_number(value: str) -> None:
    result = invoke("train", "points", "--epochs", value)
    assert result.exit_code == 2 and "--epochs" in result.output


def test_out_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = invoke("train", "points", "--out", tmp_path / "file" / "run")
    assert result.exit_code == 2
    assert "--out: cannot write to the folder" in result.output


def test_no_data_folder(tmp_path: Path) -> None:
    result = invoke("train", "mnist", "--data-dir", tmp_path / "no", "--out", tmp_path)
    assert result.exit_code == 2 and "--data-dir: there is no folder" in result.output


@pytest.mark.parametrize("recipe", ["mnist", "gpt"])
@pytest.mark.parametrize("why", ["--data-dir=.", "--device=cuda:77"])
def test_what_cannot_begin_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("train", recipe, why)
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert not list(tmp_path.glob("runs/*"))


def test_data_without_labels_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minitorch.data import write_idx

    data = tmp_path / "data"
    data.mkdir()
    arguments = ["train", "mnist", "--quiet", "--out", tmp_path / "run"]
    write_idx(data / "train-images-idx3-ubyte", np.zeros((2, 28, 28), np.uint8))
    (tmp_path / "empty").mkdir()
    result = invoke(*arguments, "--data-dir", tmp_path / "empty")
    assert result.exit_code == 1
    assert "train-images-idx3-ubyte: not in it" in result.output
    for place in (tmp_path / "empty", tmp_path / "nowhere"):
        monkeypatch.setenv("MINITORCH_DATA", str(place))
        result = invoke(*arguments)
        assert result.exit_code == 1 and "Traceback" not in result.output
        assert f"{place}, which MINITORCH_DATA names" in result.output


def test_broken_data_is_not_replaced(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train-images-idx3", "train-labels-idx1"):
        (data / f"{name}-ubyte.gz").write_bytes(b"not gzip")
    result = invoke("train", "mnist", "--data-dir", data, "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert "train-images-idx3-ubyte.gz" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 100])
def test_broken_checkpoint(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "last.safetensors").write_bytes(content)
    result = invoke("train", "points", "--resume", tmp_path)
    assert result.exit_code == 1
    assert "last.safetensors cannot be read" in result.output
    assert "Traceback" not in result.output


def test_resume_of_another_model(tmp_path: Path) -> None:
    assert invoke("train", "points", *QUICK, "--out", tmp_path).exit_code == 0
    result = invoke("train", "points", "--resume", tmp_path, "--model", "linear")
    assert result.exit_code == 2
    assert "--model: the checkpoint" in result.output and "'mlp'" in result.output


def test_divergence(tmp_path: Path) -> None:
    arguments = ["--optimizer", "sgd", "--lr", "1e18", "--out", tmp_path, "--no-plots"]
    result = invoke("train", "points", *arguments)
    assert result.exit_code == 1
    assert re.search(r"loss became (nan|inf) in step \d+", result.output)
    assert "try --lr 1e+17" in result.output
    assert "Traceback" not in result.output


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "last.safetensors").write_bytes(b"")
    run = in_a_process("train", "points", "--resume", tmp_path, "--debug")
    assert run.returncode == 1
    assert "Traceback" in run.stderr and "CheckpointError" in run.stderr


def test_drawn_digits_are_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without MNIST: what was tried is told, and nothing claims to be MNIST."""
    from minitorch.data import digit_data
    from minitorch.data.mnist import MNISTUnavailable

    def unavailable(*arguments: Any, **options: Any) -> Any:
        raise MNISTUnavailable("train-images", [("cache", "not in it")])

    monkeypatch.setattr(digit_data, "load_mnist", unavailable)
    arguments = ["--limit", "64", "--epochs", "1", "--model", "mlp", "--no-plots"]
    quiet = invoke("train", "mnist", *arguments, "--out", tmp_path, "--quiet")
    assert quiet.stderr.startswith("These are drawn digits, not MNIST's")
    assert len(quiet.stdout.splitlines()) == 1
    result = invoke("train", "mnist", *arguments, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "These are drawn digits" in result.output
    assert "cache: not in it" in result.output and "--data-dir" in result.output
    assert "drawn digits: test accuracy" in result.output
    assert json.loads((tmp_path / "metrics.json").read_text())["data"] == "drawn digits"


# --------------------------------------------------------------------------- doctor


@pytest.mark.extras
def test_doctor_as_json() -> None:
    result = invoke("doctor", "--json")
    assert result.exit_code == 0
    checks = {check["name"]: check for check in json.loads(result.output)}
    assert checks["Python"]["found"].startswith(
        ".".join(map(str, sys.version_info[:3]))
    )
    assert checks["NumPy"]["found"] == np.__version__
    for name in ("cores", "vector units", "threads", "MNIST", "Mojo compiler", "fonts"):
        assert name in checks
    for check in checks.values():
        assert check["status"] in ("ok", "note", "missing", "broken")
        assert check["advice"] or check["status"] == "ok", check
    assert checks["kernels"]["status"] == "ok", checks["kernels"]


def test_doctor_survives_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    import platform

    def broken() -> str:
        raise OSError("no such machine")

    monkeypatch.setattr(platform, "python_version", broken)
    result = invoke("doctor", "--json")
    assert result.exit_code == 0
    first = json.loads(result.output)[0]
    assert first["status"] == "broken" and "no such machine" in first["found"]


def test_doctor_says_what_the_simulator_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from minitorch.cli import checks

    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    status, found, advice = checks._simulator()
    assert (status, found) == ("note", "needs numba-cuda and greenlet")
    assert "minitorch[cuda13]" in advice


def test_numbers_that_no_machine_has() -> None:
    assert invoke("lab", "--no-open", "--port", "65536").exit_code == 2
    few, many = (invoke("bench", "--threads", n) for n in ("0", "100000"))
    assert few.exit_code == many.exit_code == 1
    assert "--threads is 0; expected 1 or more" in few.output
    assert "--threads is 100000; expected at most" in many.output


def test_what_to_type_to_resume_can_be_typed(capsys: pytest.CaptureFixture) -> None:
    from minitorch.cli.errors import _explain_stop
    from minitorch.train.running import Interrupted

    _explain_stop(Interrupted(2, Path("my runs")), "minitorch train xor")
    assert "minitorch train xor --resume 'my runs'" in capsys.readouterr().err


@pytest.mark.parametrize("signum", [2, 15])
def test_launch_is_stopped_as_other_commands_are(
    signum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pytest.importorskip("torch.distributed.run")
    from torch.distributed.elastic.multiprocessing.api import SignalException

    def stopped(arguments: Any) -> None:
        raise SignalException("got a signal", sigval=signum)

    monkeypatch.setattr(run, "run", stopped)
    result = invoke("launch", "--ranks", "2", "--", "train", "xor")
    assert result.exit_code == 128 + signum and "stopped" in result.output


@pytest.mark.parametrize("command", ["xray", "inspect"])
def test_what_kernels_need(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cuda_ops.registry", "cuda_ops.runtime.occupancy"):
        monkeypatch.setitem(sys.modules, module, None)
    result = invoke(command, "transpose_tiled")
    assert result.exit_code == 1
    assert f"minitorch: {command}: kernels cannot be compiled here" in result.output
    assert "pip install 'minitorch[cuda13]'" in result.output


@pytest.mark.extras
def test_devices() -> None:
    result = invoke("devices")
    assert result.exit_code == 0
    assert re.search(r"^cpu +works$", result.output, re.MULTILINE)
    assert re.search(r"^simple +works$", result.output, re.MULTILINE)


@pytest.mark.parametrize("command", ["test", "grade a1 .", "grade-all a1 ."])
def test_checks_need_fork(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.delattr(os, "fork", raising=False)
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 1 and "on Windows use WSL" in result.output
