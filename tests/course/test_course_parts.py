"""Regions, the overlay, inputs, comparisons and points, each by itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignments import catalog, overlay, regions
from assignments.checks import Check, Speed
from assignments.compare import LONGEST, difference, same, show, tolerance
from assignments.draw import LAYOUTS, Choice, Replay, SeededDraw
from assignments.shrink import search
from minitorch.todo import todo, unwritten_task

# --------------------------------------------------------------------------- regions

BODY = '''
"""A module."""

from __future__ import annotations


def f(x):
    """What f is."""
    y = x
    # BEGIN SOLUTION a3.1
    y += 1
    # END SOLUTION a3.1
    return y


# BEGIN SOLUTION a3.2
class C:
    """What C is."""

    @staticmethod
    def g(
        x: int,
    ) -> int:
        """What g is."""
        # why
        return x

    def h(self):
        # why
        return 2


# END SOLUTION a3.2
'''


def test_strip_keeps_signatures_and_docstrings():
    text = regions.strip(BODY, "m.py", None, lambda task, name: f"write {name}")
    assert "SOLUTION" not in text and "why" not in text and "y += 1" not in text
    assert text.count("from minitorch.todo import todo") == 1
    for kept in ("What f is", "y = x", "return y", "What C is", "What g is", "def h"):
        assert kept in text
    for said in (
        '    # TODO a3.1: write f\n    todo("a3.1")',
        "write C.g",
        "write C.h",
    ):
        assert said in text
    scope: dict = {}
    exec(compile(text, "m.py", "exec"), scope)
    with pytest.raises(NotImplementedError, match=r"a3\.1 is not implemented yet"):
        scope["f"](1)
    with pytest.raises(NotImplementedError, match=r"a3\.2 is not implemented yet"):
        scope["C"].g(1)


def test_strip_takes_only_the_given_tasks():
    text = regions.strip(BODY, "m.py", ["a3.1"])
    assert "y += 1" not in text and "return 2" in text and "SOLUTION" not in text
    assert regions.strip(BODY, "m.py", []).count("todo") == 0


def test_functions_of_a_task():
    found = regions.parse(BODY, "m.py")
    assert regions.functions_of(found, "a3.1") == {"f"}
    assert regions.functions_of(found, "a3.2") == {"C.g", "C.h"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f():\n    # BEGIN SOLUTION a1.1\n    pass\n", "a1.1 has no end"),
        ("def f():\n    # END SOLUTION a1.1\n    pass\n", "none is open"),
        (
            "# BEGIN SOLUTION a1.1\n# BEGIN SOLUTION a1.2\nx = 1\n",
            "a1.2 begins inside a1.1",
        ),
        ("# BEGIN SOLUTION a1.1\nx = 1\n# END SOLUTION a1.1\n", "only hold"),
        ("# BEGIN SOLUTION one\nx = 1\n# END SOLUTION one\n", "is no task"),
        (
            "def f():\n    if f:\n        # BEGIN SOLUTION a1.1\n        a = 1\n"
            "    b = 1\n    # END SOLUTION a1.1\n",
            "whole statements",
        ),
        (
            "def f():\n    # BEGIN SOLUTION a1.1\n    # END SOLUTION a1.1\n    f()",
            "whole",
        ),
    ],
)
def test_bad_markers_are_named(text, said):
    with pytest.raises(regions.RegionError, match=said):
        regions.parse(text, "m.py")


def test_mojo_files():
    text = "fn f():\n    # BEGIN SOLUTION a9.1\n    x = 1\n    # END SOLUTION a9.1\n"
    out = regions.strip(text, "m.mojo")
    assert 'raise Error("task a9.1 is not implemented yet")' in out
    assert "x = 1" not in out


# ------------------------------------------------------------------- todo in kernels


def test_todo_names_the_task():
    with pytest.raises(
        NotImplementedError, match=r"^task a3\.1 is not implemented yet"
    ):
        todo("a3.1")

    def kernel(a):
        todo("a5.2")

    def puzzle(a):
        todo("a4w.3")

    assert (unwritten_task(kernel), unwritten_task(puzzle)) == ("a5.2", "a4w.3")
    assert unwritten_task(test_functions_of_a_task) is None


def test_unwritten_kernels_fail_at_their_launcher():
    from fast_ops.launch import Unwritten, compile_kernel, device_function

    def missing(x):
        todo("a3.1")

    helper = device_function(missing)

    def calls_it(a):
        a[0] = helper(a[0])

    for made in (compile_kernel(missing), helper, compile_kernel(calls_it)):
        assert isinstance(made, Unwritten)
        with pytest.raises(NotImplementedError, match=r"a3\.1 is not implemented yet"):
            made(np.zeros(1))


def test_kernels_are_cached_by_what_they_are_made_from():
    from fast_ops.launch import source_digest

    one, other = source_digest("fast_ops.softmax"), source_digest("fast_ops.matmul")
    assert one != other and one == source_digest("fast_ops.softmax")


# --------------------------------------------------------------------------- overlay

OVERLAY = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from assignments import overlay
file = Path(sys.argv[2]) / "operators.py"
overlay.install({"minitorch.operators": file}, {"minitorch.operators": {"sub", "gone"}})
from minitorch import operators
import minitorch.tensor_data
print(operators.add(1, 2), operators.sub(1, 2), operators.gone(1), operators.__file__)
print(minitorch.tensor_data.__file__)
try:
    overlay.install({"minitorch.scalar": file})
except RuntimeError as error:
    print(error)
"""


def test_overlay_replaces_a_module_and_nothing_else(tmp_path):
    library = tmp_path / "library"
    for name in ("assignments", "minitorch"):
        (library / name).mkdir(parents=True)
        (library / name / "__init__.py").write_text("")
    for name in ("overlay.py", "regions.py", "syntax.py"):
        shutil.copy(catalog.FOLDER / name, library / "assignments" / name)
    (library / "minitorch" / "tensor_data.py").write_text("")
    (library / "minitorch" / "operators.py").write_text(
        "def sub(x, y):\n    return 'right'\n\ndef gone(x):\n    return 'back'\n"
    )
    (tmp_path / "tensor_data.py").write_text("raise RuntimeError\n")
    (tmp_path / "operators.py").write_text(
        "def add(x, y):\n    return 'mine'\n\ndef sub(x, y):\n    return 'wrong'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", OVERLAY, str(library), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == f"mine right back {tmp_path / 'operators.py'}"
    assert second == str(library / "minitorch" / "tensor_data.py")
    assert "install the overlay before" in third


THEIRS = b"""import functools

@functools.gone
def ours():
    return "before"

def ours():
    return "theirs"

class A:
    x = 0

def shown():
    raise ValueError(ours(), A().f(), added())
"""
LIBRARY = b"""class A:
    def f(self):
        return 1

def ours():
    raise KeyError

def ours():
    return "ours"

def added():
    return 2
"""


def test_functions_of_other_tasks_are_the_librarys():
    """Those that a student removed come back, and lines keep their numbers."""
    names: dict = {}
    exec(
        overlay.compiled(THEIRS, "x.py", LIBRARY, {"ours", "A.f", "added", "no"}), names
    )
    with pytest.raises(ValueError, match="ours") as caught:
        names["shown"]()
    assert caught.value.args == ("ours", 1, 2)
    assert caught.traceback[-1].lineno + 1 == 14
    assert names["A"].x == 0
    assert names["ours"].__code__.co_firstlineno > overlay.LIBRARY_LINES


@pytest.mark.parametrize("text", [b"x = (", b"x = " + b"-" * 90_000 + b"1", b"\0"])
def test_what_cannot_be_compiled_is_a_syntax_error(text):
    with pytest.raises(SyntaxError):
        overlay.compiled(text, "x.py")


# ---------------------------------------------------------------------------- inputs


def _inputs(draw, n, m):
    return {
        "a": draw.array((n, m), draw.choice(("float32", "int64", "bool"))),
        "x": draw.number(),
        "how": draw.choice(LAYOUTS),
    }


CHECK = Check(
    "a9.9",
    "sum",
    lambda device, **inputs: {},
    _inputs,
    lambda **inputs: {},
    {"n": (0, 3), "m": (0, 3)},
    ({"n": 0, "m": 5}, {"n": 33, "m": 40}),
    examples=5,
)


def test_cases_depend_on_the_seed_alone():
    one, again, other = (list(CHECK.cases(seed)) for seed in (7, 7, 8))
    assert (
        len(one) == 7 and one[0]["a"].shape == (0, 5) and one[1]["a"].shape == (33, 40)
    )
    pairs = [(x[k], y[k]) for x, y in zip(one, again) for k in x]
    assert all(same(x, y) for x, y in pairs)
    assert not all(same(x[k], y[k]) for x, y in zip(one, other) for k in x)


@given(st.lists(st.integers(-9, 9) | st.floats(-9, 9)))
def test_a_replay_draws_the_same_kind_of_inputs(values):
    inputs = _inputs(Replay([Choice(v) for v in values]), 2, 3)
    assert inputs["a"].shape == (2, 3) and inputs["how"] in LAYOUTS
    if inputs["a"].dtype == np.float32:
        assert np.abs(inputs["a"]).max() <= 2
    assert -2 <= inputs["x"] <= 2


def test_a_replay_repeats_what_was_drawn():
    for draw, sizes in CHECK.draws(7):
        inputs = _inputs(draw, **sizes)
        again = _inputs(Replay(draw.made), **sizes)
        assert all(same(inputs[name], again[name]) for name in inputs)


def _shaped(draw, dims):
    shape = tuple(draw.integer(1, 5) for _ in range(dims))
    return {"a": draw.array(shape), "how": draw.choice(LAYOUTS)}


@pytest.mark.parametrize(
    ("fails", "shape", "how"),
    [
        (lambda a, how: True, (), "contiguous"),
        (lambda a, how: a.size > 1 and a.ndim == 3, (1, 1, 2), "contiguous"),
        (lambda a, how: a.ndim > 1 and a.shape[0] > 1, (2, 1), "contiguous"),
        (lambda a, how: a.ndim == 4 and how == "stepped", (1, 1, 1, 1), "stepped"),
        (lambda a, how: a.size > 15, (16,), "contiguous"),
    ],
)
def test_the_smallest_input_is_small(fails, shape, how):
    """Fewest dimensions and smallest sizes, and of the options the first."""
    check = Check(
        *("a9.9", "any", None, _shaped, None, {"dims": (0, 4)}, ({"dims": 3},)),
        examples=60,
    )
    found = search(check, 0, lambda inputs: fails(**inputs) or None, seconds=60)
    got = found.inputs["a"].shape
    assert sorted(got) == sorted(shape) if shape != (16,) else len(got) <= 2
    assert found.inputs["how"] == how and not found.by_chance


def test_sizes_shrink_to_the_edge_where_they_fail():
    check = Check(
        "a9.9", "any", None, _inputs, None, {"n": (0, 3), "m": (0, 3)}, CHECK.edges
    )
    found = search(check, 0, lambda inputs: len(inputs["a"]) > 17 or None, seconds=60)
    assert found.inputs["a"].shape == (18, 0)


def test_what_fails_by_chance_is_told():
    answers = iter([True])
    found = search(CHECK, 0, lambda inputs: next(answers, None))
    assert found.by_chance


@given(st.integers(0, 2**32), st.sampled_from(["float32", "int32", "bool"]))
def test_seeded_arrays(seed, dtype):
    array = SeededDraw(seed, "a").array((3, 4), dtype, -1, 1)
    assert array.dtype == dtype and array.shape == (3, 4)
    assert np.abs(array.astype(float)).max() <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (4, 1, 2)])
def test_operands_show_their_array_in_every_layout(layout, shape):
    from assignments.calling import operand, read

    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    made = operand("simple", array, layout)
    assert same(read(made), array)


def test_results_show_shared_and_changed_operands():
    from assignments.calling import operand, results

    array = np.ones((2, 2), np.float32)
    x = operand("simple", array)
    with pytest.raises(ValueError, match="out shares its memory with a"):
        results({"out": x.permute((1, 0))}, {"a": x})
    out = results({"out": operand("simple", array)}, {"a": x})
    assert same(out["out"], array) and same(out["a"], array)
    y = operand("simple", array)
    y.storage.array[0] = 5
    assert not same(results({}, {"a": y})["a"], array)


# ----------------------------------------------------------------------- comparisons

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("got", "expected", "reason"),
    [
        (ONES, ONES, None),
        (ONES + np.float32(1e-6), ONES, None),
        (ONES + np.float32(1e-3), ONES, "wrong values"),
        (ONES.astype(np.float64), ONES, "dtype"),
        (ONES[:1], ONES, "shape"),
        (ONES.tolist(), ONES, "expected an array"),
        (ONES * np.float32(np.nan), ONES, "wrong values"),
        (ONES * np.float32(np.nan), ONES * np.float32(np.nan), None),
        (ONES * np.float32(np.inf), -ONES * np.float32(np.inf), "wrong values"),
        (ONES.astype(np.int64), ONES.astype(np.int64) * 2, "wrong values"),
        (1, True, "expected a bool"),
        (1.0, 1.0 + 1e-15, None),
        (1.0, 1.1, "wrong values"),
        (1, 1.0, "expected a float"),
        (float("nan"), 0.0, "wrong values"),
        ((1, 2), [1, 2], None),
        ([1, 2], [1, 2, 3], "2 entries; expected 3"),
        ([1, [ONES]], [1, [ONES * 2]], "wrong values"),
        ({"a": 1}, {"a": 2}, "wrong"),
        (None, 0.5, "wrong"),
    ],
)
def test_differences(got, expected, reason):
    found = difference({"out": expected}, {"out": got}, {})
    assert (found is None) if reason is None else reason in found.reason


class Lazy(np.ndarray):
    """An array whose class could compare as it likes."""


def test_a_fact_that_does_not_hold_is_said_in_words():
    for fact, said in ((True, "is not so"), (False, "should not be so")):
        found = difference(
            {"a row is read once": fact}, {"a row is read once": not fact}, {}
        )
        assert found.reason == f"a row is read once: this {said}" and not found.got


def test_subclasses_missing_names_and_changed_operands_fail():
    assert difference({"out": ONES}, {"out": ONES.view(Lazy)}, {}) is not None
    assert difference({"out": ONES}, {}, {}) is not None
    assert difference({"out": ONES}, {"out": ONES, "more": 1}, {}) is not None
    assert difference({"out": ONES}, None, {}) is not None
    changed = difference({"out": ONES}, {"out": ONES, "a": ONES * 2}, {"a": ONES})
    assert changed is not None and "the operand a was changed" in changed.reason
    assert difference({"out": 1}, {"raises": "ValueError"}, {}) is not None
    assert difference({"raises": "ValueError"}, {"raises": "ValueError"}, {}) is None
    assert difference({"raises": "ValueError"}, {"raises": None}, {}) is not None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.arange(3), "[0, 1, 2]  (int64 [3])"),
        (np.float32(1) * np.ones((1, 1, 2), "f4"), "[[[1., 1.]]]  (float32 [1, 1, 2])"),
        ([1, (2, "b")], "[1, (2, 'b')]"),
    ],
)
def test_small_values_are_shown_whole(value, text):
    assert show(value) == text


LONG = {
    "ten dimensions": lambda: np.ones((2,) * 10),
    "large array": lambda: np.ones((3, 4, 50, 60)),
    "list of lists": lambda: [[1] * 1000] * 10_000,
    "dict": lambda: {str(n): "x" * 10_000 for n in range(1000)},
    "number": lambda: 10 ** (10**5),
    "list of arrays": lambda: [np.ones((30, 30))] * 100,
    "text": lambda: "x" * 10**6,
}


@pytest.mark.parametrize("name", LONG)
def test_nothing_is_shown_at_length(name):
    text = show(LONG[name]())
    assert len(text) <= LONGEST + 3 and text.count("\n") < 90


def test_large_arrays_are_shown_around_the_first_difference():
    expected = np.zeros((2, 3, 40, 50), np.float32)
    got = expected.copy()
    got[1, 2, 20, 30] = 7
    found = difference({"out": expected}, {"out": got}, {})
    assert "7." in found.got and "7" not in found.expected.partition("(")[0]
    assert "here [1, 2, 18:23, 27:34]" in found.got
    assert max(map(len, found.got.splitlines())) <= 88
    assert found.where.startswith("out[1, 2, 20, 30] is 7.0; expected 0.0")


def test_tolerance_grows_with_the_length():
    one, many = (tolerance(np.dtype(np.float32), n) for n in (1, 10_000))
    assert 1e-6 < one < 1e-5 and 1e-3 < many < 1e-2
    assert tolerance(np.dtype(np.int64), 10) == 0


# ---------------------------------------------------------------------------- points


def test_points():
    assert catalog.earned(4, [1, 1], False) == 4
    assert catalog.earned(4, [1, 0], False) == 0
    assert catalog.earned(4, [1, 0], True) == 2
    assert catalog.earned(4, [], True) == 0
    steps = ((0.5, 0.5), (1, 1))
    speed = Speed("a9.9", "", None, None, _inputs, dict, {"n": 2, "m": 2}, steps, None)
    assert [speed.points_share(r) for r in (0.4, 0.5, 0.9, 1.0, 3.0)] == [
        0,
        0.5,
        0.5,
        1,
        1,
    ]
    assert not same(speed.make_inputs(1, 1)["a"], speed.make_inputs(1, 2)["a"])


def test_nothing_heavy_is_imported():
    """A worker may load what describes checks before the library is replaced."""
    code = textwrap.dedent(
        """
        import sys
        import assignments.checks, assignments.calling, assignments.overlay
        import assignments.runner, assignments.workspace, assignments.catalog
        heavy = {"minitorch", "torch", "numba", "hypothesis", "fast_ops"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=catalog.LIBRARY)
