"""What a9 runs in the student's process: Mojo kernels on flat arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from assignments.calling import (
    Timed,
    called,
    operands_of,
    operator_of,
    results,
    rung_of,
    timed,
)

UNWRITTEN = re.compile(r"task a9\.\d is not implemented yet")
COMPLAINT = re.compile(r"^(\S+\.mojo):(\d+):\d+: error: (.*)\n(.*)", re.MULTILINE)
# Where a function begins in the student's file; see `mojo_text.replace`.
BEGIN = re.compile(r"  # line (\d+)$")


def _call(kernel: Callable[..., Any], *args: Any) -> Any:
    """Call a kernel; errors of Mojo as the errors that they would be in Python."""
    try:
        return kernel(*args)
    except RuntimeError as error:
        text = str(error)
        if UNWRITTEN.search(text):
            raise NotImplementedError(text) from None
        found = COMPLAINT.search(text)
        if found is None:
            raise
        path, number, message, line = found.groups()
        said = f"it does not compile: {message}"
        place = Path(path).name, _own_line(path, int(number)), None, line
        raise SyntaxError(said, place) from None


def _own_line(path: str, number: int) -> int | None:
    """The line of the student's file that is line `number` of what was compiled."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()[:number]
    except OSError:
        return None
    for back, line in enumerate(reversed(lines)):
        begin = BEGIN.search(line)
        if begin is not None:
            return int(begin[1]) + back
    return None


def product(device: str, name: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """A rung of the ladder of products."""
    return called(_rung(name), operands_of(device, a=a, b=b))


def same_bits(device: str, name: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """A product on one thread and on several: the same to the last bit."""
    from mojo_ops.bridge import get_num_threads, set_num_threads

    multiply, before = _rung(name), get_num_threads()
    given = operands_of(device, a=a, b=b)
    outs = []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            outs.append(multiply(*given.values()))
    finally:
        set_num_threads(before)
    return results({str(i): out for i, out in enumerate(outs)}, given)


def map_tensor(device: str, fn: str, a: np.ndarray) -> dict[str, Any]:
    """`map` of the backend, for an operator that Mojo has."""
    from minitorch.dtypes import bool_
    from mojo_ops import elementwise

    dtype = bool_ if fn == "isnan" else None
    run = lambda x: _call(elementwise.map, operator_of(fn), x, dtype)
    return called(run, operands_of(device, a=a))


def _rung(name: str) -> Callable[..., Any]:
    from mojo_ops.matmul import LADDER

    return partial(_call, rung_of(LADDER, name))


# ----------------------------------------------------------------------------- speed


def timed_loop_order(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """The rung without vectors and threads."""
    return _timed(device, "matmul_loop_order", a, b)


def timed_vectorized(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """The rung with vectors."""
    return _timed(device, "matmul_vectorized", a, b)


def timed_tiled(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """The rung with tiles in registers, on all threads."""
    return _timed(device, "matmul_tiled", a, b)


def _timed(device: str, name: str, a: np.ndarray, b: np.ndarray) -> Timed:
    return timed(_rung(name), operands_of(device, a=a, b=b))
