"""Compiling kernels: what decides about a new compilation, and what can go wrong."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assignments.catalog import load
from assignments.grading.library import _mojo_kernels
from helpers import DAMAGES, damaged
from minitorch.backend import registry
from mojo_ops import bridge, build

KERNEL = """
from bridge import Arguments, Buffer, Object, done


@export
def twice(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    var a = arguments.buffer[DType.float32](0)
    a[0] = 2 * a[0]
    return done()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a file of kernels called "probe"."""
    monkeypatch.setenv(build.CACHE, str(tmp_path / "cache"))
    (tmp_path / "probe.mojo").write_text(KERNEL)
    monkeypatch.setitem(build.replaced, "probe", tmp_path / "probe.mojo")
    return tmp_path


# ------------------------------------------------------------------------ the sources


def test_sources_are_those_that_a_module_imports() -> None:
    assert {"elementwise", "operators", "scalar_math", "bridge", "parallel"} <= set(
        build.sources("elementwise")
    )
    assert "operators" not in build.sources("matmul")


def test_a_file_can_take_the_place_of_ours(folder: Path) -> None:
    assert build.sources("probe")["probe"] == KERNEL
    assert set(build.sources("probe")) == {"probe", "bridge"}


def test_the_name_depends_on_all_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    texts = {"a": "x", "b": "y"}
    first = build.digest(texts)
    assert build.digest(dict(reversed(texts.items()))) == first
    others = {build.digest({"a": "x", "b": "z"}), build.digest({"a": "x"})}
    monkeypatch.setenv("MINITORCH_MOJO_FLAGS", "-D ASSERT=all")
    others.add(build.digest(texts))
    monkeypatch.delenv("MINITORCH_MOJO_FLAGS")
    monkeypatch.setattr(build, "version", lambda: "9.9")
    others.add(build.digest(texts))
    monkeypatch.undo()
    monkeypatch.setattr(build, "processor", lambda: "another")
    others.add(build.digest(texts))
    assert len(others | {first}) == 6


# ---------------------------------------------------------------------- what goes wrong


def no_compiler() -> Path:
    raise ModuleNotFoundError("the Mojo compiler is not installed", name="mojo")


def message_of(loading: type[Exception]) -> str:
    """What a user reads where the backend cannot be loaded."""
    with pytest.raises(loading) as caught:
        build.check_platform()
    return str(caught.value)


def test_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert "Windows" in message_of(ImportError)


def test_an_old_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    assert "2.34" in (text := message_of(ImportError)) and "2.31" in text


def test_a_missing_compiler_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Point:
        load = staticmethod(build.check_platform)

    monkeypatch.setattr(build, "compiler", no_compiler)
    monkeypatch.setattr(registry, "_registered", lambda path: {"mojo": Point})
    with pytest.raises(RuntimeError, match=r"pip install -e '\.\[mojo\]'") as caught:
        registry._load("mojo")
    # The tests' own reason to skip: see `helpers.loaded`.
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_cache_that_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    (folder / "file").write_text("not a folder")
    monkeypatch.setenv(build.CACHE, str(folder / "file" / "cache"))
    with pytest.raises(RuntimeError, match=f"cannot be written.*{build.CACHE}"):
        build.built("probe")


def test_an_error_in_a_kernel_is_shown(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    (folder / "probe.mojo").write_text(KERNEL.replace("2 * a[0]", "2 * b[0]"))
    with pytest.raises(RuntimeError, match="does not compile") as caught:
        build.built("probe")
    assert str(folder / "probe.mojo") in str(caught.value)
    assert "unknown declaration 'b'" in str(caught.value)
    assert "compiling" in capfd.readouterr().err
    assert not list((folder / "cache").glob("probe*"))
    with pytest.raises(RuntimeError, match="does not compile"):
        build.built("probe")
    assert "compiling" not in capfd.readouterr().err


def test_compiled_once(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    first = build.built("probe")
    assert first.exists() and "compiling" in capfd.readouterr().err
    assert build.built("probe") == first
    assert capfd.readouterr().err == ""
    assert [f.name for f in (folder / "cache").glob("probe*")] == [first.name]


def test_a_folder_that_is_given_is_only_read(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    made, given = build.built("probe"), folder / "given"
    given.mkdir()
    moved = made.rename(given / made.name)
    monkeypatch.setenv(build.GIVEN, str(given))
    capfd.readouterr()
    assert build.built("probe") == moved and capfd.readouterr().err == ""
    a = np.ones(1, np.float32)
    bridge.Library("probe").twice(a)
    assert a[0] == 2 and not any((folder / "cache").glob("probe*"))


def test_a_worker_is_given_what_its_task_changes_nothing_in() -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    given = {
        task: {path.name.partition("-")[0] for path in _mojo_kernels(load("a9"), task)}
        for task in (None, "a9.1", "a9.5", "a9.6")
    }
    assert given == {
        None: {"matmul", "elementwise"},
        "a9.1": {"elementwise"},
        "a9.5": {"matmul"},
        "a9.6": {"elementwise"},  # it times what other tasks solve in matmul.mojo
    }


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_library_is_made_again(
    how: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    content = b"the library that the compiler made " * 100

    def make(command: list[str], **options: Any) -> Any:
        Path(command[-1]).write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(build, "compiler", lambda: folder / "modular" / "bin" / "mojo")
    monkeypatch.setattr(build, "version", lambda: "a compiler that is quick")
    monkeypatch.setattr(subprocess, "run", make)
    file = build.built("probe")
    file.write_bytes(damaged(content, how))
    capfd.readouterr()
    assert build.built("probe") == file and file.read_bytes() == content
    first, *rest = capfd.readouterr().err.splitlines()
    assert first == f"mojo_ops: {file} is damaged; it is made again"
    assert len(rest) == 1 and "compiling" in rest[0]
    assert list((folder / "cache").iterdir()) == [file]


def test_kernels_run_after_their_library_was_damaged(folder: Path) -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    file = build.built("probe")
    file.write_bytes(bytes(file.stat().st_size))
    a = np.ones(1, np.float32)
    bridge.Library("probe").twice(a)
    assert a[0] == 2


def test_the_compiler_sends_nothing_home(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mojo.run", reason=f"no Mojo compiler: {build.INSTALL}")
    monkeypatch.setenv("MODULAR_TELEMETRY_ENABLED", "true")
    environment = build._environment()
    assert environment["MODULAR_TELEMETRY_ENABLED"] == "false"
    assert environment["MODULAR_CRASH_REPORTING_ENABLED"] == "false"
