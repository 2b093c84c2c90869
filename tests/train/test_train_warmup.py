"""Kernels that are compiled in a second process."""

from __future__ import annotations

from unittest import mock

import pytest

from minitorch.train import warmup


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_other_devices_need_no_second_process(cache):
    with mock.patch("subprocess.Popen") as popen:
        assert warmup.compile_ahead("simple") is None
    popen.assert_not_called()


def test_one_core_is_left_alone(cache, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with mock.patch("subprocess.Popen") as popen:
        assert warmup.compile_ahead("cpu") is None
    popen.assert_not_called()


def test_no_second_process_is_no_error(cache, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with mock.patch("subprocess.Popen", side_effect=OSError("no more processes")):
        assert warmup.compile_ahead("cpu") is None


def test_the_mark_keeps_the_next_run_from_starting_one(cache, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with mock.patch("subprocess.Popen") as popen:
        assert warmup.compile_ahead("cpu") is popen.return_value
        command = popen.call_args.args[0]
        assert command[-2:] == ["-m", "minitorch.train.warmup"]
        warmup.main()  # what that command does
        assert warmup.mark().is_relative_to(cache) and warmup.mark().exists()
        assert warmup.compile_ahead("cpu") is None


def test_the_mark_knows_where_the_cache_is(cache, monkeypatch):
    before = warmup.mark()
    monkeypatch.setattr("numba.config.CACHE_DIR", "/another/folder")
    assert warmup.mark() != before
