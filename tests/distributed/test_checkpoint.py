"""Checkpoints of ranks, which are threads here: any parts, and what can go wrong."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from helpers import quick
from minitorch import distributed as dist
from minitorch.distributed import checkpoint, spawn_threads
from minitorch.distributed.checkpoint import CheckpointException, storage
from minitorch.distributed.group import world
from minitorch.distributed.tensor.placement import (
    Cut,
    Layout,
    ShardedTensor,
    boxes_of,
)
from minitorch.train import load_checkpoint

SHAPES = (), (3,), (4, 6), (5, 1, 3), (0, 2)


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def dealt(x: Any, how: str) -> Any:
    """This rank's part of a tensor: all, some columns, or some numbers in a row."""
    group: Any = world()
    if how == "whole" or (how == "columns" and tuple(x.shape) != (4, 6)):
        return x.clone()
    if how == "columns":
        layout = Cut(1, (4, 2) if group.size() < 3 else (6,), group).layout(x)
    else:
        ends = [rank * x.numel() // group.size() for rank in range(group.size() + 1)]
        boxes = [tuple(boxes_of(x.shape, *pair)) for pair in pairwise(ends)]
        layout = Layout(tuple(x.shape), tuple(boxes), None, group, "cpu")
    return ShardedTensor(layout, layout.part(x))


def state(how: str, number: float = 1.0) -> dict[str, Any]:
    """Nested, with numbers of some dtypes, and what is no tensor."""
    tensors = {
        i: dealt(minitorch.tensor(x) * number, how) for i, x in enumerate(arrays())
    }
    half = dealt(minitorch.arange(24).view(4, 6).to(minitorch.bfloat16), how)
    rest: dict[str, Any] = {"mask": dealt(minitorch.arange(24).view(4, 6) > 5, how)}
    rest |= {"step": number, "none": {}, "history": [{"loss": (1, 2.5)}], "text": "a"}
    return {"model": tensors, "half": half, **rest}


def equal(found: Any, expected: Any) -> None:
    """Two nested states have the same."""
    assert list(found) == list(expected)
    for key, x in found.items():
        other = expected[key]
        if isinstance(x, dict):
            equal(x, other)
        elif isinstance(x, (minitorch.Tensor, ShardedTensor)):
            pair = [getattr(y, "local", y) for y in (x, other)]
            assert pair[0].dtype == pair[1].dtype
            np.testing.assert_array_equal(*(y.float().numpy() for y in pair))
        else:
            assert x == other


HOW = st.sampled_from(["whole", "columns", "row by row"])


@quick
@given(n=st.integers(1, 4), m=st.integers(1, 4), before=HOW, now=HOW)
def test_any_parts_become_any_others(
    tmp_path_factory: Any, n: int, m: int, before: str, now: str
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")

    def write() -> None:
        checkpoint.save(state(before), checkpoint_id=folder)

    def read() -> None:
        found = state(now, 0.0)
        checkpoint.load(found, checkpoint_id=folder)
        equal(found, state(now))

    spawn_threads(write, n)
    spawn_threads(read, m)
    alone = checkpoint.whole(checkpoint.open_state(folder))
    equal(alone, spawn_threads(lambda: state("whole"), 1)[0])


def test_what_is_written_and_read_once(tmp_path: Path) -> None:
    """Ranks that have the same share the work, and read what they need."""

    def program() -> Any:
        rows = {f"{i}": minitorch.ones(64, 64) * i for i in range(4)}
        checkpoint.save(rows, checkpoint_id=tmp_path)
        stored = checkpoint.open_state(tmp_path)["3"]
        opened, seen = stored.opened, list[Any]()

        class Watched:
            def __init__(self, file: str) -> None:
                self.file = opened(file)

            def get_slice(self, key: str) -> Any:
                piece = self.file.get_slice(key)
                return type("", (), {"__getitem__": lambda _, at: look(piece[at])})()

        def look(x: Any) -> Any:
            seen.append(x.shape)
            return x

        stored.opened = Watched
        assert stored[2:4, 60:64].tolist() == [[3.0] * 4] * 2
        return seen

    assert spawn_threads(program, 2) == [[(2, 4)]] * 2
    sizes = [file.stat().st_size for file in tmp_path.glob("__*")]
    assert len(sizes) == 2 and max(sizes) < 3 * 64 * 64 * 4


def told(program: Callable[[], Any], n: int = 2) -> str:
    """The error that all ranks get alike."""

    def run() -> str:
        with pytest.raises(CheckpointException) as error:
            program()
        return str(error.value)

    first, *others = spawn_threads(run, n)
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize("where", ["__1_", storage.METADATA])
def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """All ranks hear of it, and the checkpoint before stays."""
    write = storage.atomic_write
    save = lambda number: checkpoint.save(
        state("row by row", number), checkpoint_id=tmp_path
    )
    spawn_threads(save, 2, 1.0)
    (tmp_path / "__0_killed.safetensors").write_bytes(b"half")
    before = sorted(tmp_path.iterdir())

    def full(path: Any, *rest: Any) -> Any:
        sync = os.fsync

        def no_room(descriptor: int) -> None:
            monkeypatch.setattr(os, "fsync", sync)
            raise OSError(errno.ENOSPC, "No space left on device")

        if Path(path).name.startswith(where):
            monkeypatch.setattr(os, "fsync", no_room)
        return write(path, *rest)

    monkeypatch.setattr(storage, "atomic_write", full)
    monkeypatch.setattr("minitorch.data.files.atomic_write", full)
    text = told(lambda: save(2.0))
    rank = 1 if where == "__1_" else 0
    assert text.startswith(f"save: rank {rank}: OSError: [Errno 28] No space left")
    assert f"{tmp_path}/{where}" in text
    assert sorted(tmp_path.iterdir()) == before
    assert checkpoint.open_state(tmp_path)["step"] == 1.0
    monkeypatch.undo()
    spawn_threads(save, 2, 3.0)
    assert checkpoint.open_state(tmp_path)["step"] == 3.0
    assert len(list(tmp_path.iterdir())) == 3  # what was left over is gone


def test_another_is_written_while_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = lambda number: checkpoint.save(
        {**state("row by row", number), "format": 1}, checkpoint_id=tmp_path
    )
    later = [2.0, 3.0]
    monkeypatch.setattr(
        checkpoint,
        "check",
        lambda path: later and spawn_threads(write, 1, later.pop(0)),
    )
    spawn_threads(write, 1, 1.0)
    assert load_checkpoint(tmp_path)["step"] == 3.0


def part(folder: Path, rank: int) -> Path:
    return next(folder.glob(f"__{rank}_*"))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def fewer_columns(file: Path) -> None:
    """Let it say of a tensor that some of its numbers are in no file."""
    text = file.read_text()
    assert "[4, 2]]" in text
    file.write_text(text.replace("[4, 2]]", "[4, 1]]"))


DAMAGE: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: part(folder, 1).unlink(), r"rank 0: FileNotFoundError.*/__1_\w+"),
    (
        lambda folder: os.truncate(part(folder, 0), 99),
        r"__0_\w+.safetensors has 99 byt",
    ),
    (lambda folder: flip(part(folder, 1)), r"rank 1: .*__1_\w+.safetensors is damaged"),
    (lambda folder: os.truncate(folder / ".metadata", 9), r".metadata is damaged"),
    (lambda folder: (folder / ".metadata").unlink(), r"No such file.*\.metadata"),
    (lambda folder: fewer_columns(folder / ".metadata"), r".metadata is damaged"),
    (
        lambda folder: (folder / ".metadata").write_text("[" * 100_000),
        r".metadata is damaged",
    ),
]


@pytest.mark.parametrize("damage, message", DAMAGE)
def test_what_is_damaged(
    tmp_path: Path, damage: Callable[[Path], Any], message: str
) -> None:
    spawn_threads(lambda: checkpoint.save(state("columns"), checkpoint_id=tmp_path), 2)
    damage(tmp_path)

    def read() -> None:
        found = state("columns", 0.0)
        try:
            checkpoint.load(found, checkpoint_id=tmp_path)
        finally:
            equal(found, state("columns", 0.0))

    with pytest.raises(AssertionError, match=message):
        raise AssertionError(told(read))


def test_two_jobs_save_into_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is told, and what the other has written can be read."""
    save = lambda number: checkpoint.save(
        state("row by row", number), checkpoint_id=tmp_path
    )
    commit = storage._commit

    def late(*args: Any) -> None:
        """Another job begins and ends before this one's last step."""
        monkeypatch.setattr(storage, "_commit", commit)
        other = threading.Thread(target=spawn_threads, args=(save, 1, 2.0))
        other.start()
        other.join()
        commit(*args)

    monkeypatch.setattr(storage, "_commit", late)
    assert "give each job a folder of its own" in told(lambda: save(1.0))
    found = checkpoint.whole(checkpoint.open_state(tmp_path))
    equal(found, spawn_threads(lambda: state("whole", 2.0), 1)[0])
    assert len(list(tmp_path.iterdir())) == 2


def test_keys_that_cannot_be_stored(tmp_path: Path) -> None:
    """JSON would make a list of a tuple, which is no key."""
    for wrong in ({"a": {(1, 2): 3}}, {(1, 2): minitorch.zeros(1)}):
        with pytest.raises(CheckpointException, match=r"has a key \(1, 2\)"):
            checkpoint.save(wrong, checkpoint_id=tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_model(tmp_path: Path) -> None:
    """Also if but one rank's is another."""
    spawn_threads(lambda: checkpoint.save(state("columns"), checkpoint_id=tmp_path), 2)

    def read() -> None:
        found = state("columns", 0.0)
        if dist.get_rank() == 1:
            found["model"] |= {2: minitorch.zeros(4, 7), "new": minitorch.zeros(1)}
        try:
            checkpoint.load(found, checkpoint_id=tmp_path)
        finally:
            assert found["step"] == 0.0

    text = told(read)
    assert text.startswith("load: rank 1: ValueError") and "rank 0" not in text
    assert "wrong shape: 'model.2' is (4, 6); expected (4, 7)" in text
    assert "missing: 'model.new' (1,)" in text


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda rank: {"a": [minitorch.ones(1)]}, "a is a list with tensors; expected"),
        (
            lambda rank: {"a.b": 1, "a": {"b": 2}},
            "two places of the state are named 'a.b",
        ),
        (
            lambda rank: {"a": minitorch.ones(1 + rank)},
            "a is float32 .2,. for __1_",
        ),
        (lambda rank: {"a": part_of(3)}, "save: ranks have 2 of the 3 numbers of a"),
    ],
)
def test_states_that_cannot_be(tmp_path: Path, made: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        spawn_threads(
            lambda: checkpoint.save(made(dist.get_rank()), checkpoint_id=tmp_path), 2
        )
    assert not list(tmp_path.iterdir())


def part_of(size: int) -> ShardedTensor:
    boxes = (((0,), (1,)),), (((1,), (1,)),)
    group: Any = world()
    return ShardedTensor(Layout((size,), boxes, 0, group, "cpu"), minitorch.ones(1))
