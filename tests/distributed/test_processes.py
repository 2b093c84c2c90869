"""Ranks that are processes, with Gloo, as torchrun starts them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import parallel_checks
import pytest
import rank_checks
import shard_checks
import train_checks
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import Processes

from minitorch import distributed as dist
from minitorch.bench import collectives, data_parallel, gpt_ranks
from minitorch.cli import errors
from minitorch.train import CheckpointError, ConfigError, load_checkpoint, load_gpt
from minitorch.train.checkpoint import save_checkpoint
from minitorch.train.gpt.config import fill_in
from minitorch.train.gpt.layout import laid_out

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    """Two processes, started once."""
    processes = Processes(2)
    yield processes
    processes.close()


def test_four_processes(tmp_path: Path) -> None:
    """All that is checked with four, one after the other: they are slow to start.

    At last one is killed, as by kill -9, in the middle of an all-reduce.
    """
    four = Processes(4)
    try:
        for check in rank_checks.CHECKS:
            four(check)
        four(rank_checks.gradients_through_collectives)
        apart = four(rank_checks.trains_as_one, 1 / 1024, 1, True, 9)
        assert max(apart) < 1e-10
        assert max(four(rank_checks.plain_training)) < 1e-10
        assert max(four(shard_checks.trains_as_one, shard_checks.by_stage_3)) < 1e-10
        assert max(four(rank_checks.uneven_numbers_of_batches)) < 1e-10
        assert four(rank_checks.buffers) == [[0.0, 0.0]] * 4
        for shape in parallel_checks.SHAPES:
            four(parallel_checks.know, shape, parallel_checks.alone(shape))
        assert max(four(parallel_checks.shares_layers, "gpt2", 2, True)) < 1e-10
        assert max(four(parallel_checks.in_stages, "llama", "one_f_one_b", 2)) < 1e-10
        both = "llama", 1, True, False, 2  # layers and sequences
        assert max(four(parallel_checks.shares_layers, *both)) < 1e-10
        assert max(four(parallel_checks.shares_experts, 2, 1.0)) < 1e-10
        one = train_checks.alone(6)
        for pair in (
            ({"pp": 2, "tp": 2}, {"cp": 2, "zero": 2}),
            ({"tp": 2, "zero": 1}, {"pp": 2, "zero": 1}),
        ):
            assert max(four(train_checks.shares_a_run, one, tmp_path, *pair)) < 1e-10
        four.send(rank_checks.add_up_for_ever, 1_000_000)
        time.sleep(1)
        four.kill(2)
        for rank in (0, 1, 3):
            told = f"CannotGoOn: all_reduce: rank {rank} of 4 cannot go on; gloo says"
            with pytest.raises(AssertionError, match=told):
                four.answer(rank, 30)
    finally:
        four.close()


def test_training_by_two(two: Processes) -> None:
    for how in ((25, 1, True, 8), (1 / 1024, 2, False, 7)):
        assert max(two(rank_checks.trains_as_one, *how)) < 1e-10
    for alike, copied in two(rank_checks.gpt_at_home, "autocast"):
        assert alike and "model.wte.weight" not in copied


def test_a_profile_shows_the_overlap(two: Processes) -> None:
    """A bucket is sent as soon as it is full; at last all are waited for."""
    sent = ["LinearBackward", "all_reduce"] * 3 + ["all_reduce: wait"] * 3
    assert two(rank_checks.profiled) == [sent] * 2


NAMES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
)


DTYPES = "float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "bool"


@settings(deadline=None, max_examples=50)
@given(
    drawn=st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(("SUM", "MAX", "MIN", "PRODUCT")),
        st.sampled_from((0, 1, 2, 3, 13, 1009)),
        st.sampled_from(DTYPES),
        st.integers(0, 1),
        st.integers(0, 99),
    )
)
def test_collectives_are_torchs(two: Processes, drawn: Any) -> None:
    two(rank_checks.as_torch, *drawn)


def test_stages_of_zero(two: Processes) -> None:
    """Equal losses, and 12, 12 and 8 bytes a parameter in place of 16."""
    for stage in (shard_checks.by_stage_1, shard_checks.by_stage_3):
        assert max(two(shard_checks.trains_as_one, stage)) < 1e-10
    for number, expected in ((0, 16), (1, 12), (2, 12), (3, 8)):
        for held in two(shard_checks.bytes_held, number):
            assert held == pytest.approx(expected, rel=0.02)


def test_layouts_train_as_one_process(two: Processes, tmp_path: Path) -> None:
    """Ten steps in one layout, ten more in another: losses, weights and the state of
    the optimizer are those of one process."""
    one = train_checks.alone(20)
    for pair in (
        ({"tp": 2}, {"pp": 2, "schedule": "interleaved"}),
        ({"zero": 3}, {"cp": 2, "zero": 1}),
    ):
        assert max(two(train_checks.shares_a_run, one, tmp_path, *pair)) < 1e-10
    one = train_checks.alone(20, "float32")
    for pair in (({"tp": 2}, {"pp": 2}), ({"zero": 2}, {"cp": 2})):
        how = (one, tmp_path, *pair, "float32")
        assert max(two(train_checks.shares_a_run, *how)) < 1e-5


def test_a_run_goes_on_in_another_layout(two: Processes, tmp_path: Path) -> None:
    """From the checkpoint before the one that a full disk did not let rank 1 write; in
    one process; and from what one process wrote."""
    lion = {"optimizer": "lion"}
    np.testing.assert_allclose(
        two(train_checks.run, tmp_path / "lion", {**lion, "tp": 2, "zero": 1})[0],
        train_checks.run(tmp_path / "one lion", lion),
        1e-5,
    )
    whole = train_checks.run(tmp_path / "one", {})
    out, copy, file = (tmp_path / name for name in ("many", "copy", "file"))
    for told in two(train_checks.run_without_room, out, {"zero": 3}):
        assert re.search(r"^save: rank 1: OSError.*No space left.*/best/__1_\w+", told)
    for name in ("last", "best"):
        assert {x.name[:4] for x in (out / name).iterdir()} == {".met", "__0_", "__1_"}
        assert len(list((out / name).iterdir())) == 3
    assert load_checkpoint(out / "last")["step"] == 3
    for other in (copy, file):
        shutil.copytree(out, other)
    save_checkpoint(file / "last.safetensors", load_checkpoint(file / "last"))
    assert not (file / "last").exists()
    np.testing.assert_allclose(train_checks.run(copy, {"resume": copy}), whole, 1e-5)
    for start, layout in ((out, {"pp": 2}), (file, {"tp": 2, "zero": 1})):
        for losses in two(train_checks.run, start, {"resume": start, **layout}):
            np.testing.assert_allclose(losses, whole, 1e-5)
        assert not (start / "last.safetensors").exists()
    model, tokenizer = load_gpt(out)  # what the ranks wrote is one whole model
    assert model.num_parameters() > 0 and tokenizer.vocab_size == 67
    for damage, message in (
        (lambda part: part.write_bytes(part.read_bytes()[:-1] + b"!"), "is damaged"),
        (lambda part: os.truncate(part, 99), "has 99 bytes, and had"),
    ):
        damage(next((out / "last").glob("__1_*")))
        first, second = two(train_checks.told, out, {"resume": out})
        assert first == second and "/last/__1_" in first and message in first


def test_a_run_that_goes_on_drops_what_it_would_have(
    two: Processes, tmp_path: Path
) -> None:
    layout = {"tp": 2, "zero": 1, "dropout": 0.3}
    two(train_checks.run_without_room, tmp_path / "stopped", layout)
    layout["resume"] = tmp_path / "stopped"
    resumed = two(train_checks.run, tmp_path / "stopped", layout)
    del layout["resume"]
    assert resumed == two(train_checks.run, tmp_path / "whole", layout)


@pytest.mark.parametrize(
    "choices, told",
    [
        ({"tp": 3}, "dp: dp 1 x tp 3 x pp 1 x cp 1 makes 3 ranks, and there are 2"),
        ({"batch_size": 3}, "dp: batch-size is 3; expected a multiple of 2"),
        ({"tp": 2, "heads": 1}, "tp: heads is 1; expected a multiple of 2"),
        ({"cp": 2, "block_size": 6}, "cp: block-size is 6; expected a multiple of 4"),
        ({"pp": 2, "layers": 1}, "pp: 2 stages of 1 layers"),
        ({"pp": 2, "batch_size": 3}, "pp: batch-size / dp is 3 rows"),
        ({"zero": 4}, "zero: got 4"),
        ({"tp": 2, "zero": 2}, "zero: stage 2 is for --dp and --cp"),
        ({"schedule": "gpipe"}, "schedule: there is no pipeline"),
        ({"optimizer": "muon"}, "optimizer: muon is not for this layout; choose from"),
        ({"optimizer": "lamb", "tp": 2}, "optimizer: lamb is not for this layout"),
        ({"dtype": "float16"}, "dtype: float16 is not for this layout"),
    ],
)
def test_layouts_that_cannot_be(choices: Any, told: str) -> None:
    with pytest.raises(ConfigError) as found:
        laid_out(fill_in(replace(train_checks.CHOICES, **choices)), 2)
    assert str(found.value).startswith(told)


def test_rank_0_says_what_all_ranks_found(monkeypatch: Any, capsys: Any) -> None:
    """If another one ended first, the launcher would end rank 0 before it speaks."""
    said = list[str]()
    monkeypatch.setattr(errors, "RANK", "1")
    monkeypatch.setattr(
        errors.time, "sleep", lambda _: said.append(capsys.readouterr().err)
    )
    with pytest.raises(typer.Exit) as end, errors.friendly(False, "minitorch train"):
        raise ConfigError("zero", "got 4")
    assert end.value.exit_code == errors.USAGE and said == [""]
    assert "--zero: got 4" in capsys.readouterr().err  # nobody else found it


RESUMED = r"resuming after step ([\d,]+)"


def checkpoint_after(step: int, folder: Path) -> int:
    """Wait for a checkpoint of a later step; which it is."""
    path = folder / "last"
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with suppress(CheckpointError):  # the next one may come just now
            found = load_checkpoint(path, whole=False)["step"]
            if found > step:
                return found
        time.sleep(0.1)
    raise AssertionError(f"no checkpoint after step {step}")


def process_of(launcher: int, rank: int) -> int:
    """The process that a launcher started as this rank."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            environment = (folder / "environ").read_bytes().split(b"\0")
            if parent == launcher and f"RANK={rank}".encode() in environment:
                return int(folder.name)
    raise AssertionError(f"no process of {launcher} is rank {rank}")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="asks Linux' /proc")
def test_a_rank_is_killed(tmp_path: Path) -> None:
    """Once all begin anew, from the last checkpoint; the second time they end, and the
    last line names it (on a slow machine another has said before that it waits)."""
    options = "--steps 1000000 --checkpoint-steps 8 --eval-every 1000000 --sample 0"
    sizes = "--layers 1 --heads 2 --width 16 --block-size 8 --batch-size 4"
    command = f"launch --ranks 2 --max-restarts 1 -- train gpt --dataset alice {sizes}"
    out, log = tmp_path / "run", tmp_path / "log"
    with log.open("w") as file:
        run = subprocess.Popen(
            [sys.executable, "-m", "minitorch.cli", *command.split(), *options.split(),
             "--eval-batches", "1", "--out", str(out)],
            stdout=file, stderr=file,
        )  # fmt: skip
    try:
        first = checkpoint_after(0, out)
        os.kill(process_of(run.pid, 1), signal.SIGKILL)
        while not (resumed := re.search(RESUMED, log.read_text())):
            assert run.poll() is None, log.read_text()
            time.sleep(0.1)
        begun = int(resumed[1].replace(",", ""))
        assert checkpoint_after(begun, out) > begun >= first
        os.kill(process_of(run.pid, 1), signal.SIGKILL)
        assert run.wait(30) == 1
    finally:
        run.kill()
    lines = [x for x in log.read_text().splitlines() if x.startswith("minitorch:")]
    named = "minitorch: rank 1 of 2 was ended by SIGKILL; so the others were ended"
    assert lines[-1] == named
    assert all("rank 0 of 2 cannot go on" in line for line in lines[:-1])


def test_a_disk_is_full(tmp_path: Path) -> None:
    """As far as a limit of the size of files can say; all ranks end, and one tells (on
    a slow machine the other says the same)."""
    resource: Any = pytest.importorskip("resource", reason="of POSIX")
    command = "launch --ranks 2 -- train gpt --dataset alice --width 256"
    done = subprocess.run(
        [sys.executable, "-m", "minitorch.cli", *command.split(),
         "--zero", "1", "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**21, 2**21)),
    )  # fmt: skip
    assert done.returncode == 1
    lines = [x for x in done.stderr.splitlines() if x.startswith("minitorch:")]
    assert len(set(lines)) == 2, done.stderr
    assert "so the others were ended" in lines[-1]
    for rank in (0, 1):
        assert f"rank {rank}: OSError: [Errno 27] File too large after" in lines[0]
        assert f"{tmp_path}/last/__{rank}_" in lines[0]
    assert not list((tmp_path / "last").iterdir())


def test_models_that_differ(two: Processes) -> None:
    for told in two(rank_checks.unlike_models):
        assert "weight (4, 3) float32 on rank 0, and weight (5, 3)" in told


def test_calls_that_differ(two: Processes, tmp_path: Path) -> None:
    """An error on both ranks, which names the difference."""
    unlike = (
        (r"3 of float32, SUM", r"4 of float32, SUM"),
        (r"3 of float32, SUM", r"3 of float64, SUM"),
        (r"3 of float32, SUM", r"3 of float32, MAX"),
        (r"3 of float32, src=0", r"3 of float32, src=1"),
        (r"new_group\(\[0\]\)", r"new_group\(\[1\]\)"),
        (r"sends 4 of float32 to rank 1", "expects 3 of float32"),
        (r"sends 2 of float32 to rank 1", "expects 3 of float32"),
        (r"sends 3 of float64 to rank 1", "expects 3 of float32"),
        (r"sends 3 of float32 to rank 1", "expects 3 of float64"),
        (r"all_to_all_single 1 .*rank 0 sends [13] of float32", "expects 2 of float32"),
        (r"all_reduce\(3 of float32, SUM", r"broadcast\(3 of float32, src=0"),
        (r"3 of float32, SUM", r"4 of float32, SUM"),
        (r"all_reduce\(3 of float32, SUM", r"broadcast\(3 of float32, src=0"),
    )
    for seen, expected in ((False, unlike), (True, unlike[-3:])):
        folder = tmp_path / str(seen)
        folder.mkdir()
        for told in two(rank_checks.unlike_calls, folder, seen):
            assert len(told) == len(expected)
            for line, parts in zip(told, expected):
                assert all(re.search(part, line) for part in parts), line
    two(rank_checks.groups_come_and_go, tmp_path)


def test_memory_is_lent_and_held(two: Processes) -> None:
    two(rank_checks.no_copy)


def test_a_rank_that_never_starts() -> None:
    with pytest.raises(RuntimeError, match="not all ranks came"):
        dist.init_process_group("gloo", "tcp://localhost:0", 1.0, 2, 0)
    assert not dist.is_initialized()


PROGRAM = """
import os, sys
import minitorch as torch
import minitorch.distributed as dist
from minitorch.nn.parallel import DistributedDataParallel as DDP

assert "torch" not in sys.modules
dist.init_process_group(backend="gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad(set_to_none=True)
    model(torch.ones(2, 3) * (rank + step)).square().mean().backward()
    optimizer.step()
# In one piece: torchrun unbuffers what ranks print, and lets it run together.
parts = [p.tolist() for p in model.module.parameters()]
sys.stdout.write(f"{rank} {parts}\\n")
dist.destroy_process_group()
"""


def test_torchrun(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc_per_node=2", str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    # Some versions of gloo print lines of their own, which begin with "[Gloo]".
    lines = [line for line in done.stdout.splitlines() if line[:1].isdigit()]
    first, second = sorted(lines)
    assert (first[0], second[0]) == ("0", "1") and first[1:] == second[1:]


def test_benches_of_ranks(two: Processes, tmp_path: Path) -> None:
    """What they measure, on little: times are of no interest here."""
    found, _ = two(rank_checks.times_of_sums)
    model = collectives.lines(2, found)
    assert len(collectives.table(found, model).splitlines()) == 1 + len(found["sizes"])
    collectives.draw(tmp_path / "sums.png", found, model)
    assert (tmp_path / "sums.png").stat().st_size > 1000
    found, _ = two(rank_checks.times_of_steps)
    assert [len(times) for times in found.values()] == [4] and "tiny" in next(
        iter(found)
    )
    rows, _ = two(rank_checks.waits_of_pipelines)
    assert [row[1:3] for row in rows] == [[m, v] for v in (1, 1, 2) for m in (2, 4, 8)]
    assert all(0 < busy <= took for *_, took, busy in rows)
    told = gpt_ranks.told("gpt2", "dp4", 10.5, 0.05, 8.0, 7.5)
    assert told == "| gpt2 | dp4 | 10.50000 | 50.0 | 8.00 | 7.50 | 1.067 |"
    line = data_parallel.row(2, [[2.5, 0.9, 0.1, 0.1, 0, 0]], 4.0, 2.0)
    assert line.split() == [
        "2",
        "2.50",
        "1.60",
        "2.00",
        "0.9000",
        *["100.000"] * 2,
        *["0.000"] * 2,
    ]
