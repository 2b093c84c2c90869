"""A GPT learns a text; a run that was stopped goes on as if it had not been."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import minitorch
from minitorch.cli.app import app
from minitorch.data import BPE, CharTokenizer, load_text, open_tokens
from minitorch.models import GPT, GPTConfig
from minitorch.train import (
    CheckpointError,
    ConfigError,
    Diverged,
    GPTResult,
    GPTTrainConfig,
    Interrupted,
    TrainConfig,
    load_checkpoint,
    load_gpt,
    recipes,
    train,
    train_gpt,
)
from minitorch.train.gpt import recipe as gpt_recipe
from minitorch.train.gpt.config import fill_in
from minitorch.train.gpt.optimizers import make_optimizer
from minitorch.train.gpt.recipe import peak_flops, row_line
from minitorch.train.gpt.session import GPTSession, Row, text_step
from minitorch.train.schedule import warm_up_cosine
from minitorch.train.tracking import METRICS, read_metrics

LAST = "last.safetensors"
TINY = GPTTrainConfig(
    dataset="alice", layers=2, heads=2, width=32, block_size=16, batch_size=4, steps=6,
    eval_every=2, eval_batches=1, sample=8, quiet=True,
)  # fmt: skip
# What a run can differ in and be the same run: all that may go wrong in it.
HARD = replace(TINY, tokenizer="bpe", vocab_size=300, dropout=0.2, accumulate=2)


def run(config: GPTTrainConfig, out: Path, **choices: Any) -> GPTResult:
    return train_gpt(replace(config, out=out, **choices))


def assert_same_run(a: Path, b: Path) -> None:
    """The same bits in all tensors, the optimizer's too, and in the generator."""
    from safetensors.numpy import load_file

    first, second = load_file(a / LAST), load_file(b / LAST)
    assert first.keys() == second.keys() and len(first) > 0
    for name in first:
        assert first[name].tobytes() == second[name].tobytes(), name
    one, two = load_checkpoint(a / LAST), load_checkpoint(b / LAST)
    for key in ("step", "generator", "scheduler", "model_config"):
        assert one[key] == two[key], key
    assert one["history"][-1]["val_loss"] == two["history"][-1]["val_loss"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Path:
    """The run HARD, from its beginning to its end."""
    folder = tmp_path_factory.mktemp("whole")
    run(HARD, folder)
    return folder


def test_it_learns(tmp_path: Path) -> None:
    """From all characters alike (4.2) to what comes often (3.0), and after what."""
    result = run(
        TINY,
        tmp_path,
        steps=100,
        eval_every=100,
        eval_batches=4,
        lr=3e-3,
        batch_size=16,
    )
    first, last = result.history[0], result.history[-1]
    assert first.val_loss == pytest.approx(math.log(67), abs=0.1)
    assert last.val_loss < first.val_loss - 1.3
    assert last.train_loss < first.train_loss - 1.3
    assert f"validation loss {last.val_loss:.4f}" in result.summary()


# -------------------------------------------------------------------- the same again


def test_three_steps_and_three_are_six(whole: Path, tmp_path: Path) -> None:
    run(HARD, tmp_path, steps=3, decay_steps=6)
    result = train_gpt(GPTTrainConfig(resume=tmp_path, steps=6, quiet=True))
    assert result.folder == tmp_path and result.config.tokenizer == "bpe"
    assert [row.step for row in result.history] == [0, 2, 3, 4, 6]
    assert_same_run(tmp_path, whole)


def test_a_run_that_was_stopped_goes_on_elsewhere(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = GPTSession.after_step

    def after_step(self: GPTSession, loss: Any) -> None:
        self.stop_signal = 2 if self.step == 4 else None
        real(self, loss)

    monkeypatch.setattr(GPTSession, "after_step", after_step)
    with pytest.raises(Interrupted):
        run(HARD, tmp_path / "a")
    monkeypatch.undo()
    assert load_checkpoint(tmp_path / "a" / LAST)["step"] == 5
    config = GPTTrainConfig(resume=tmp_path / "a" / LAST, out=tmp_path / "b")
    train_gpt(replace(config, quiet=True))
    assert_same_run(tmp_path / "b", whole)
    assert load_gpt(tmp_path / "b")[1].vocab_size == 300


def test_looking_on_changes_nothing(whole: Path, tmp_path: Path, capsys: Any) -> None:
    """Neither samples nor measurements, checkpoints, or less memory."""
    run(
        HARD, tmp_path, quiet=False, eval_every=1, eval_batches=2, checkpoint_steps=1,
        recompute=True,
    )  # fmt: skip
    assert len(capsys.readouterr().out.splitlines()) >= 7
    losses = json.loads((tmp_path / "metrics.json").read_text())["rows"]
    assert [row["step"] for row in losses] == list(range(7))
    one, two = (load_checkpoint(f / LAST)["model"] for f in (tmp_path, whole))
    for name in one:
        assert np.array_equal(one[name].numpy(), two[name].numpy()), name


@pytest.mark.parametrize("recipe", ["gpt", "points"])
def test_what_measuring_takes_is_no_training(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what a checkpoint takes: time passes in the measurement alone here."""
    clock = [100.0]

    def slowly(measure: Any) -> Any:
        def measured(*args: Any) -> Any:
            clock[0] += 50.0
            return measure(*args)

        return measured

    for module, name in ((gpt_recipe, "mean_loss"), (recipes, "evaluate")):
        monkeypatch.setattr(module, name, slowly(getattr(module, name)))
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    if recipe == "gpt":
        history: Any = run(TINY, tmp_path).history
    else:
        history = train(
            TrainConfig("points", epochs=3, out=tmp_path, quiet=True)
        ).history
    assert len(history) > 2 and clock[0] > 200
    assert [row.seconds for row in history] == [0.0] * len(history)


def test_a_finished_run_has_nothing_left_to_do(whole: Path) -> None:
    before = (whole / LAST).read_bytes()
    result = train_gpt(GPTTrainConfig(resume=whole, quiet=True))
    assert result.history[-1].step == 6 and (whole / LAST).read_bytes() == before


def test_what_cannot_be_resumed_is_explained(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"lr: the checkpoint .* with 0.001, and .*0.1"
    ):
        train_gpt(GPTTrainConfig(resume=whole, lr=0.1))
    (tmp_path / LAST).write_bytes((whole / LAST).read_bytes())
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json"):
        train_gpt(GPTTrainConfig(resume=tmp_path, quiet=True))


# ------------------------------------------------------------------------- the parts


def test_the_folder_has_all_that_writing_needs(whole: Path) -> None:
    model, tokenizer = load_gpt(whole)
    saved = load_checkpoint(whole / LAST)
    assert isinstance(tokenizer, BPE) and not model.training
    assert model.config.dropout == 0.2 and model.config.vocab_size == 300
    val = open_tokens(whole / "val.bin", 300)
    train = open_tokens(whole / "train.bin", 300)
    text = load_text("alice").text
    assert tokenizer.decode([*train, *val]) == text
    assert len(tokenizer.decode(train)) == int(0.9 * len(text))
    ids = model.generate(tokenizer.encode("Alice"), 5)
    assert len(tokenizer.decode(ids)) >= 5
    config = json.loads((whole / "config.json").read_text())
    assert config["model_config"] == saved["model_config"] and config["steps"] == 6
    lines = [row for row in read_metrics(whole / METRICS) if "val_loss" in row]
    kept = [(row["step"], row["val_loss"]) for row in saved["history"]]
    assert [(row["step"], row["val_loss"]) for row in lines] == kept
    assert [step for step, _ in kept] == [0, 2, 4, 6]


def tiny_gpt(vocab_size: int = 11) -> GPT:
    minitorch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 16}
    return GPT(GPTConfig(vocab_size=vocab_size, **sizes))


def test_batches_in_turn_are_one_batch() -> None:
    ids = np.random.default_rng(0).integers(0, 11, (2, 4, 17))
    x, y = minitorch.tensor(ids[..., :-1]), minitorch.tensor(ids[..., 1:])
    results = []
    for shape in ((2, 4, 16), (1, 8, 16)):
        model = tiny_gpt()
        optimizer = minitorch.optim.SGD(model.parameters(), lr=1.0)
        loss = text_step(model, optimizer, 0.5, x.reshape(shape), y.reshape(shape))
        results.append((loss.item(), model.state_dict()))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    for name, weight in results[0][1].items():
        other = results[1][1][name].numpy()
        np.testing.assert_allclose(weight.numpy(), other, atol=1e-6, err_msg=name)
    before = tiny_gpt().state_dict()
    changes = [results[0][1][n].numpy() - before[n].numpy() for n in before]
    twice = changes[list(before).index("lm_head.weight")]  # the table of tokens, too
    norm = sum((change**2).sum() for change in changes) - (twice**2).sum()
    assert norm == pytest.approx(0.25, abs=1e-4)  # clipped


def test_only_matrices_decay() -> None:
    model = tiny_gpt()
    optimizer = make_optimizer(model, fill_in(TINY))
    decayed, others = (group["params"] for group in optimizer.param_groups)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.1, 0.0]
    assert {p.dim() for p in decayed} == {2} and {p.dim() for p in others} == {1}
    assert sum(p.numel() for p in [*decayed, *others]) == model.num_parameters()


def test_the_schedule_is_nanogpts() -> None:
    factor = warm_up_cosine(10, 100, 0.1)
    assert [factor(i) for i in range(10)] == [(i + 1) / 11 for i in range(10)]
    assert factor(10) == 1.0 and factor(55) == pytest.approx(0.55)
    assert factor(32) == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi * 22 / 90)))
    assert factor(100) == factor(1000) == pytest.approx(0.1)


def test_presets_are_nanogpts_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    small = fill_in(GPTTrainConfig())
    sizes = small.layers, small.heads, small.width, small.block_size, small.dropout
    assert sizes == (4, 4, 128, 64, 0.0)
    work = small.batch_size, small.steps, small.eval_batches, small.warm_up
    assert work == (12, 2000, 20, 100)
    rates = small.lr, small.min_lr, small.decay_steps, small.beta2, small.weight_decay
    assert rates == (1e-3, 1e-4, 2000, 0.99, 0.1)
    large = fill_in(GPTTrainConfig(model="char"))
    sizes = large.layers, large.heads, large.width, large.block_size, large.dropout
    assert sizes == (6, 6, 384, 256, 0.2)
    assert (large.batch_size, large.steps, large.eval_batches) == (64, 5000, 200)
    from minitorch.train.gpt import config

    monkeypatch.setattr(config, "available_devices", lambda: ["cpu", "cuda"])
    assert fill_in(GPTTrainConfig(device="cuda:1")).model == "char"


def test_the_limit_of_a_gpu_is_that_of_the_numbers_used(monkeypatch) -> None:
    missing = "the package numba-cuda is not installed"
    limits = pytest.importorskip("cuda_ops.limits", reason=missing)
    simulator = pytest.importorskip("cuda_ops.simulator", reason=missing)
    monkeypatch.setattr(simulator, "SIMULATED", False)
    monkeypatch.setattr(limits, "peak_flops", lambda: 60e12)
    monkeypatch.setattr(limits, "tensor_rate", lambda: 8.0)
    assert peak_flops("cuda") == 60e12
    assert peak_flops("cuda", "bfloat16") == 16 * 60e12
    with monkeypatch.context() as patched:
        patched.setattr(minitorch.precision.state, "allow_tf32", True)
        assert peak_flops("cuda") == 8 * 60e12


def test_a_limit_that_is_not_known_is_a_dash() -> None:
    assert peak_flops("simple") is None
    row = Row(20, 2.5, 2.6, 1e-3, 3.21, 12345.6, None)
    assert row_line(row, 100) == (
        "step  20/100  loss 2.5000  validation loss 2.6000  lr 1.00e-03  3.2 s  "
        "12,346 tokens/s  MFU -"
    )
    assert row_line(replace(row, utilization=0.2345), 100).endswith("MFU 23.4%")


def test_divergence_is_explained(tmp_path: Path) -> None:
    with pytest.raises(
        Diverged, match=r"until step \d.*--lr.*the last good checkpoint"
    ):
        run(TINY, tmp_path, lr=1e30, clip=0.0)
    weights = load_checkpoint(tmp_path / LAST)["model"]
    assert all(np.isfinite(w.numpy()).all() for w in weights.values())


@pytest.mark.parametrize(
    "choices, message",
    [
        (
            {"tokenizer": "words"},
            "tokenizer: there is no 'words'; choose from char, bpe",
        ),
        ({"vocab_size": 300}, "vocab-size: only the tokenizer 'bpe' has one"),
        ({"tokenizer": "bpe", "vocab_size": 9}, "vocab-size: got 9; .* 256 or more"),
        ({"model": "gpt9"}, "model: there is no 'gpt9'; choose from tiny, char-small"),
        ({"heads": 5}, "model: GPTConfig: n_embd is 32, n_head 5"),
        ({"block_size": 9000}, r"block-size: got 9000; val\.bin has \d+ tokens"),
        ({"device": "gpu"}, "device: there is no 'gpu'"),
        ({"dropout": 1.0}, "dropout: got 1.0; expected a number, 0 or more, below 1"),
        ({"lr": 0.0}, "lr: got 0.0; expected a number, above 0"),
        ({"min_lr": 0.2}, r"min-lr: got 0.2; expected at most [\d.]+, which is lr"),
        ({"accumulate": 0}, "accumulate: got 0; expected a whole number, 1 or more"),
    ],
)
def test_wrong_choices_are_explained(
    choices: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(TINY, tmp_path, **choices)


# ------------------------------------------------------------------ the command line


def invoke(*arguments: Any) -> Any:
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["train", "gpt", *map(str, arguments)])


FEW = [
    "--layers", 2, "--heads", 2, "--width", 32, "--block-size", 16, "--batch-size", 4,
    "--eval-batches", 1, "--sample", 12,
]  # fmt: skip


def test_the_command(tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("to be or not to be, that is the question: " * 30)
    CharTokenizer.train(text.read_text() + "\n").save(tmp_path / "letters.json")
    result = invoke(
        *FEW, "--dataset", text, "--tokenizer", tmp_path / "letters.json", "--steps", 9,
        "--eval-every", 4, "--out", tmp_path / "run", "--profile",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = [
        line for line in result.output.splitlines() if re.match(r"step +\d+/", line)
    ]
    assert [re.split("[ /]", row)[1] for row in rows] == list("0489")
    assert rows[0].endswith("- tokens/s  MFU -")
    numbers = r"lr \d\.\d\de-\d\d  [\d.]+ s  [\d,]+ tokens/s  MFU \d+\.\d%$"
    assert all(re.search(numbers, row) for row in rows[1:]), rows
    samples = [line for line in result.output.splitlines() if line.startswith("    ")]
    assert samples and set("".join(samples)) <= set(text.read_text())
    assert "5 steps, after 3 others" in result.output
    assert (tmp_path / "run" / "trace.json").exists()
    last = result.output.splitlines()[-1]
    assert re.fullmatch(
        r".*mine.txt, \d+ tokens: validation loss [\d.]+( \(best .*\))?, training loss "
        r"[\d.]+, after 9 steps; files in .*run",
        last,
    )
    again = invoke("--resume", tmp_path / "run", "--steps", 10, "--quiet")
    assert again.exit_code == 0 and "after 10 steps" in again.output
    assert len(again.output.splitlines()) == 1


def test_help_shows_the_defaults_that_hold() -> None:
    text = invoke("--help").output
    shown = dict(
        re.findall(r"--([a-z0-9-]+)\b[^\n]*?\[default: \(?([^)\]]+)\)?\]", text)
    )
    small = fill_in(GPTTrainConfig(tokenizer="bpe"))
    large = fill_in(GPTTrainConfig(model="char"))
    for option in (
        "layers", "heads", "width", "block-size", "dropout", "steps", "batch-size",
        "accumulate", "beta2", "optimizer", "dtype", "weight-decay", "clip",
        "eval-every", "eval-batches", "sample", "seed", "vocab-size", "device",
        "dataset",
    ):  # fmt: skip
        name = option.replace("-", "_")
        one, two = (getattr(config, name) for config in (small, large))
        both = one == two or option == "vocab-size"
        assert shown[option] == (f"{one}" if both else f"{one}; char: {two}"), option


# ------------------------------------------------------- optimizers, and half types


@pytest.mark.parametrize(
    "choices",
    [
        {"dtype": "float16"},
        {"optimizer": "muon", "dtype": "bfloat16"},
        {"optimizer": "schedule-free"},
        {"optimizer": "lion"},
        {"optimizer": "lamb"},
    ],
    ids=lambda choices: "-".join(choices.values()),
)
def test_any_run_goes_on_as_if_it_had_not_been_stopped(
    choices: dict[str, Any], tmp_path: Path
) -> None:
    """Its loss falls, and neither a checkpoint nor a measurement changes a bit."""
    config = replace(TINY, **choices, batch_size=16, weight_decay=0.5)
    whole = run(config, tmp_path / "a", steps=12, eval_every=12)
    run(config, tmp_path / "b", steps=5, decay_steps=12, warm_up=1)
    again = GPTTrainConfig(resume=tmp_path / "b", steps=12, quiet=True)
    result = train_gpt(replace(again, checkpoint_steps=1))
    assert_same_run(tmp_path / "b", tmp_path / "a")
    first, last = (whole.history[i].val_loss for i in (0, -1))
    assert last < first - 0.05
    assert result.history[-1].val_loss == last
    for model in (whole.model, load_gpt(tmp_path / "a")[0]):
        assert all(p.dtype is minitorch.float32 for p in model.parameters())
        same = zip(model.parameters(), result.model.parameters())
        assert all(p.equal(q) for p, q in same)


def test_float16_skips_what_is_too_large(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """The scaler finds its factor, and its state is in the checkpoint."""
    real = GPTSession.__post_init__

    def huge(self: GPTSession) -> None:
        real(self)
        self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": 2.0**40})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GPTSession, "__post_init__", huge)
        before = run(TINY, tmp_path, dtype="float16", steps=2).history
    saved = load_checkpoint(tmp_path / LAST)
    assert before[0].val_loss == before[-1].val_loss  # nothing was learned yet
    assert saved["scaler"]["scale"] == 2.0**38 and saved["step"] == 2
    again = GPTTrainConfig(resume=tmp_path, steps=3, quiet=True)
    train_gpt(again)
    assert load_checkpoint(tmp_path / LAST)["scaler"]["scale"] == 2.0**37
    assert not [w for w in recwarn if "scheduler" in str(w.message)]
