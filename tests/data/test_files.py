"""Writing files: what a kill leaves behind, and what a full disk says."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import minitorch
from minitorch.data import atomic_write
from minitorch.data.files import remove_leftovers

unix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")

WRITER = """
import sys, time
from minitorch.data import atomic_write

with atomic_write(sys.argv[1]) as file:
    file.write(b"half of")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


def writer(path: Path) -> subprocess.Popen[str]:
    """A process in the middle of writing a file; a line of input lets it go on."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=pipe, stdout=pipe, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    return process


@unix
def test_what_a_kill_leaves_is_removed_and_a_live_writers_file_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / ".another.tmp").write_text("not ours")
    killed, alive = writer(tmp_path / "a"), writer(tmp_path / "b")
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 3
    with atomic_write(tmp_path / "c") as file:
        file.write(b"c")
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 3 and {".another.tmp", "c"} < names  # and the live writer's
    remove_leftovers(tmp_path)
    alive.communicate("\n")
    assert alive.returncode == 0 and (tmp_path / "b").read_bytes() == b"half of"
    assert {p.name for p in tmp_path.iterdir()} == {".another.tmp", "b", "c"}


@unix
def test_a_file_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    original, calls = fcntl.flock, []

    def late(file: Any, how: int) -> None:
        if not calls:  # another process is quicker
            Path(file.name).unlink()
        calls.append(how)
        original(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic_write(tmp_path / "a") as file:
        file.write(b"a")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert calls == [fcntl.LOCK_EX] * 2


@unix
def test_another_writer_does_not_take_a_complete_file_for_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def late(source: Path, target: Path) -> None:  # another process is quicker
        remove_leftovers(tmp_path)
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    minitorch.save({"a": minitorch.ones(2)}, tmp_path / "a")
    assert minitorch.load(tmp_path / "a")["a"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["a"]


@unix
def test_an_error_stays_what_it_is_while_another_writer_clears_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks on one full disk: each removes leftovers, and tells its own error."""
    stat = Path.stat

    def late(path: Path, **options: Any) -> os.stat_result:
        result = stat(path, **options)
        if path.suffix == ".tmp":
            remove_leftovers(tmp_path)
        return result

    monkeypatch.setattr(Path, "stat", late)
    with pytest.raises(OSError, match="after 6 of 9 bytes") as error:
        with atomic_write(tmp_path / "a", 9) as file:
            file.write(b"half o")
            file.flush()
            raise OSError(errno.EFBIG, "File too large")
    assert error.value.filename == str(tmp_path / "a")
    assert not os.listdir(tmp_path)


@unix
def test_a_link_stays_one_and_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("file")
    os.mkfifo(pipe)
    with atomic_write(link) as file:
        file.write(b"a")
    assert link.is_symlink() and (tmp_path / "file").read_bytes() == b"a"
    for path, kind in ((pipe, OSError), (tmp_path, IsADirectoryError)):
        with pytest.raises(kind, match="not a file; expected the name of one") as error:
            minitorch.save({}, path)
        assert error.value.filename == str(path)
    assert pipe.is_fifo() and len(os.listdir(tmp_path)) == 3


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "a"
    with pytest.raises(FileNotFoundError) as error:
        minitorch.save({}, path)
    assert error.value.filename == str(path)


@unix
def test_a_full_disk_names_the_file_and_the_bytes(tmp_path: Path) -> None:
    """A limit on the size of files is what stands for a disk without room."""
    import resource

    path = tmp_path / "weights.safetensors"
    minitorch.save({"a": minitorch.ones(10)}, path)
    before, old = resource.getrlimit(resource.RLIMIT_FSIZE), path.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            minitorch.save({"a": minitorch.ones(10_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    message = str(caught.value)
    assert str(path) in message and "4,096 of 40,2" in message, message
    assert "make room" in message and caught.value.filename == str(path)
    assert path.read_bytes() == old and os.listdir(tmp_path) == [path.name]
