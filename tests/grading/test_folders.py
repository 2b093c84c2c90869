"""Folders of graders that were killed go with the next one; those of others stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from assignments.grading import folders

MAKES = """
import sys, tempfile
from assignments.grading.folders import until_exit
tempfile.tempdir = sys.argv[1]
print(until_exit("of-a-test-"), flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(folders.atexit, "register", lambda *_: None)
    words = [sys.executable, "-c", MAKES, str(tmp_path)]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **options) as process:
        theirs = Path(process.stdout.readline().strip())
        (theirs / "file").write_text("of a submission")
        old = folders.AGE + 60
        young = folders.until_exit("of-a-test-")
        for path in (theirs, young):
            now = path.stat().st_mtime
            os.utime(path, (now - old, now - old))
        assert folders.until_exit("of-a-test-").is_dir()
        assert (theirs / "file").exists()  # it is alive
        process.kill()
    fresh = tmp_path / "of-a-test-just-made"
    fresh.mkdir()
    folders.until_exit("of-a-test-")
    assert not theirs.exists()
    assert young.is_dir() and fresh.is_dir()  # this process holds one of them
