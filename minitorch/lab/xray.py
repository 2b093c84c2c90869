"""The page "X-ray": what each lane of a GPU kernel asks memory for, line by line.

With this file one can let `minitorch xray` look into a kernel (`XRayPage`), in a
process of its own, which the user can stop, and show what it prints, with what each
lane did.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from minitorch.cli.xray import COLUMNS, accesses_of, facts_of, flow_of, title_of
from minitorch.lab.questions import text


def told(scene: dict[str, Any]) -> dict[str, Any]:
    """A scene with the words of the command: its title, and the cells of its table."""
    for function in scene["functions"]:
        for line in function["lines"]:
            line["flow"], line["accesses"] = flow_of(line), accesses_of(line)
    words = {"title": title_of(scene), "facts": facts_of(scene)}
    # An answer with an "error" is none; what ended a kernel's run is worth seeing.
    words |= {"columns": list(COLUMNS), "ended": scene.pop("error")}
    return {**scene, **words}


class XRayPage:
    """What answers for the page. One process at a time looks; a new one ends it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None
        self.questions = {"names": self.names, "look": self.look, "stop": self.stop}

    def names(self, question: dict[str, Any]) -> dict[str, Any]:
        """The library's kernels that can be looked at."""
        return {"names": self._names}

    @cached_property
    def _names(self) -> list[str]:
        return _answer(_start("--list")).split()

    def look(self, question: dict[str, Any]) -> dict[str, Any]:
        """The scene of a kernel of the library or the workspace, or of FILE:KERNEL.

        Raises:
            ValueError: none was named.
            RuntimeError: what the command complains of, or that it was stopped.
        """
        kernel = text(question, "kernel", 500).strip()
        if not kernel:
            raise ValueError("xray: no kernel was named; type one, or FILE:KERNEL")
        with self.lock:
            self._end()
            process = self.process = _start("--json", "--lanes", "--", kernel)
        return told(json.loads(_answer(process)))

    def stop(self, question: dict[str, Any]) -> dict[str, Any]:
        """End the process that looks, if one does."""
        with self.lock:
            self._end()
        return {}

    def _end(self) -> None:
        if self.process is not None:
            self.process.terminate()  # which ends what it has started, as well

    def listen(self) -> Iterator[dict[str, Any] | None]:
        return iter(())


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "minitorch", "xray", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def _answer(process: subprocess.Popen[str]) -> str:
    """What a command prints. A kernel that has a race has a scene all the same.

    Raises:
        RuntimeError: with the command's last words, where it prints nothing.
    """
    out, words = process.communicate()
    if not out:
        said = words.rpartition("minitorch: ")[2].partition("\n(--debug")[0].strip()
        stopped = process.returncode < 0 or said == "stopped"
        raise RuntimeError("xray: stopped" if stopped else said[-2000:])
    return out
