"""A program that is its own ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minitorch.multiprocessing import spawn


def work(i: int, folder: str, failing: int) -> None:
    """What a rank does."""
    if i == failing:
        raise ValueError(200_000 * "x" + f"rank {i} gives up")
    if failing == 9:
        os._exit(3)
    Path(folder, str(i)).write_text(str(os.getpid()))


def test_spawn(tmp_path: Path) -> None:
    spawn(work, (str(tmp_path), -1), nprocs=2)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(found) == ["0", "1"] and len({*found.values(), str(os.getpid())}) == 3


def test_a_rank_that_fails(tmp_path: Path) -> None:
    given = work, (str(tmp_path), 1), 2
    with pytest.raises(
        RuntimeError, match=r"process 1 .*code 1:\n[^$]*rank 1 gives up"
    ):
        spawn(*given, start_method="fork")
    with pytest.raises(RuntimeError, match=r"has failed, with exit code 3:\n$"):
        spawn(work, (str(tmp_path), 9), 2, start_method="fork")
    with pytest.raises(ValueError, match="join=False is not offered"):
        spawn(*given, join=False)
