"""What a kernel writes next to an array is an error of its call."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from course.solutions import WRONG, run_to_failure, with_mistake, write_files
from grading.mini_course import MINI, Mini, make_grader, write_file

from assignments import fences
from assignments.calling import operand
from assignments.catalog import Task
from assignments.checks import Check
from assignments.grading.grade import Grader
from minitorch import dtypes
from minitorch.backend import fences as seam
from minitorch.backend import get_backend

DTYPES = [d for d in vars(dtypes).values() if isinstance(d, dtypes.DType)]
BIG = 1_333


def _write(array, index, change=1):
    """Change the byte with which an element begins that the array does not have."""
    place = array.ctypes.data + index * array.itemsize
    byte = ctypes.c_uint8.from_address(place)
    byte.value = (byte.value + change) % 256


def _caught(index, size=BIG, dtype=dtypes.float32, name=""):
    """Write to an index of a new array; the error's text, "" if there is none."""
    array = None
    try:
        with fences.watching("cpu"):
            tensor = get_backend("cpu").empty((size,), dtype)
            array = tensor.storage.array
            if name:
                fences.name({name: tensor})
            _write(array, index)
            del tensor, array  # it is looked at although nobody has it any more
    except IndexError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "index, size, side",
    [
        (BIG, BIG, "behind the end"),
        (BIG + 100, BIG, "behind the end"),
        (-1, BIG, "before the beginning"),
        (-128, BIG, "before the beginning"),
        (0, 0, "behind the end"),
        (-1, 0, "before the beginning"),
    ],
)
def test_one_element_too_far_is_told(index, size, side):
    said = f"a kernel wrote {side} of an array of {size:,} elements (float32)"
    assert _caught(index, size) == f"{said}: index {index:,}"
    assert _caught(index, size, name="out") == f"{said}, `out`: index {index:,}"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_type_has_fences(dtype):
    for size in (0, 3, BIG, 300_000):  # the last one comes from a pool otherwise
        for index in (size, -1):
            assert "a kernel wrote" in _caught(index, size, dtype)


def test_what_is_inside_may_be_written():
    for index in (0, BIG - 1):
        assert _caught(index) == ""
    assert seam.around is None


def test_operands_and_results_are_fenced_and_aligned():
    a = np.arange(20, dtype=np.float32).reshape(4, 5)
    for layout in ("contiguous", "offset", "permuted", "stepped", "negative"):
        for side in (0, -1):
            with pytest.raises(IndexError, match="a kernel wrote"):
                with fences.watching("cpu"):
                    x = operand("cpu", a, layout)
                    assert np.array_equal(x.array(), a)
                    flat = x.storage.array
                    assert flat.ctypes.data % 64 == 0
                    _write(flat, -1 if side else len(flat))
    x = operand("cpu", a)
    assert isinstance(x.storage.array, np.ndarray)  # nobody looks: nothing is copied


def test_arithmetic_leaves_a_trace_and_copies_do_too():
    """`out[i] += x` behind the end, and fence copied to fence."""
    backend = get_backend("cpu")
    for spoil in (
        lambda to, of: np.add(to, np.float32(1), out=to),
        lambda to, of: np.copyto(to, of),
    ):
        with pytest.raises(IndexError, match="index 8"):
            with fences.watching("cpu"), np.errstate(invalid="ignore"):
                ends = []
                for _ in range(2):
                    flat = backend.empty((8,), dtypes.float32).storage.array
                    ends.append(np.lib.stride_tricks.as_strided(flat, (9,))[8:])
                    assert np.isnan(ends[-1]).all() and np.isnan(flat).all()
                spoil(*ends)


def test_memory_that_is_held_is_bounded(monkeypatch):
    monkeypatch.setattr(fences, "HELD", 1 << 20)
    backend = get_backend("cpu")
    with pytest.raises(IndexError, match="index 50,000"):
        with fences.watching("cpu"):
            for i in range(20):
                flat = backend.empty((50_000,), dtypes.float32).storage.array
                if i == 0:
                    _write(flat, len(flat))
                assert seam.around.__self__._bytes <= 1 << 20


def test_an_error_of_the_call_comes_first():
    with pytest.raises(ZeroDivisionError), fences.watching("cpu"):
        _write(get_backend("cpu").empty((4,), dtypes.int64).storage.array, 4)
        _ = 1 / 0
    with fences.watching("simple"):
        assert seam.around is None  # Python checks bounds


# ------------------------------------------------------- for students and for teachers


@pytest.mark.parametrize("name", ["a3-one_cell_too_many", "a7-one_task_too_many"])
def test_minitorch_test_tells_it(name, simulator, tmp_path):
    (wrong,) = [wrong for wrong in WRONG if wrong.name == name]
    write_files(wrong.assignment, tmp_path / "a", with_mistake(wrong))
    task = wrong.assignment.task(wrong.task)
    *_, last = run_to_failure(simulator, task, "cpu", tmp_path / "a")
    said = "raised IndexError: a kernel wrote behind the end of an array of"
    assert last.share == 0 and last.reason.startswith(said), last


LOOP = """
from numba import njit
import numpy as np

@njit
def doubled(x, first, step, out):
    if x.size:
        for i in range(out.size):
            out[i] = 2 * x[first + i * step]
        {}
"""
BEHIND = "out[out.size] = 2 * x[first]"
BEFORE = "out[np.uint64(0) - np.uint64(1)] = 1"
OPERAND = "x[x.size] = 1"


def _vector(draw, n):
    return {"x": draw.array((n,), "float32"), "layout": "offset"}


def _expected(x, layout):
    return {"out": 2 * x}


class Compiled(Mini):
    """The miniature assignment with one check, of a compiled loop."""

    def checks(self, task=None):
        from grading.mini.calls import doubled

        sizes, edges = {"n": (0, 40)}, tuple({"n": n} for n in (0, 1, 8))
        what = "a99.1", "doubled", doubled, _vector, _expected
        return (Check(*what, sizes=sizes, edges=edges, examples=2),)


TASK = Task("a99.1", "doubled", 4.0, devices=("cpu",), seconds=60.0)
# A slug of its own: what is graded is the library without the tasks of its assignment.
COMPILED = Compiled(MINI.id, "a99_compiled", MINI.title, (TASK,), MINI.files)


@pytest.mark.parametrize("line", ["pass", BEHIND, BEFORE, OPERAND])
def test_grade_tells_it(line, tmp_path):
    settings = make_grader(read_code=False).settings
    grader = Grader(COMPILED, replace(settings, patience=10.0))
    report = grader.grade(write_file(tmp_path / "s", LOOP.format(line)))
    (result,) = report.tasks[0].results
    assert (report.tasks[0].points == 4.0) == (line == "pass"), result
    side = "before the beginning" if line == BEFORE else "behind the end"
    if line != "pass":
        assert result.reason.startswith(f"raised IndexError: a kernel wrote {side} of")
        assert f"`{'x' if line == OPERAND else 'out'}`: index" in result.reason
