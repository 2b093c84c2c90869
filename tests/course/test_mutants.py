"""Mistakes made by machine are caught: a few here, all by `course/mutants.py`.

Tasks whose checks take seconds each are left to that command (see CONTRIBUTING.md).
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from course.mutants import (
    CAUGHT,
    SAME,
    SKIPPED,
    TIMED_OUT,
    Trial,
    changes,
    mutants,
    same_as_reference,
    sample,
    tasks,
)

from assignments import catalog

# Mutants of each task to try here.
QUICK = {
    "a0.1": 2, "a0.3": 1, "a0.4": 1, "a1.1": 1, "a1.2": 2, "a1.3": 1, "a1.4": 2,
    "a1.5": 1, "a2.1": 1, "a2.2": 1, "a2.3": 2, "a2.6": 1, "a4.3": 1, "a4.4": 1,
    "a4.5": 1, "a4w.8": 1, "a5.6": 1, "a10.1": 2, "a10.5": 1, "a11.4": 1, "a11.5": 1,
    "a14.3": 1, "a14.4": 1, "a15.1": 1, "a15.2": 1, "a15.4": 1,
    "a16.2": 1, "a16.3": 1, "a17.2": 1, "a17.4": 1,
    "a18.2": 1, "a18.4": 1, "a18.5": 1,
}  # fmt: skip


PLACES = [
    pytest.param(name, marks=[pytest.mark.extras] * (name[:2] in ("a4", "a5")))
    for name in QUICK
]


@pytest.mark.parametrize("name", PLACES)
def test_mutants_are_caught(name, simulator, tmp_path):
    (task,) = tasks([name])
    trial = Trial(simulator, catalog.load(task.assignment), tmp_path, task.seconds)
    for mutant in sample(task, QUICK[name]):
        fate, why = trial.run(mutant)
        if fate == SKIPPED:
            pytest.skip(why)
        assert fate in (CAUGHT, TIMED_OUT, SAME), f"{mutant.function}: {mutant.change}"


def made(text: str, compiled: bool = False) -> set[str]:
    """All that takes the place of a part of some code."""
    nodes = ast.walk(ast.parse(text))
    return {change for node in nodes for _, change in changes(node, compiled)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y", {"(x - y)"}),
        ("x < y", {"(x <= y)", "(x >= y)"}),
        ("x is None and y", {"(x is not None)", "(x is None or y)"}),
        ("a[i, j]", {"a[j, i]", "a[i + 1, j]", "a[i, j - 1]"}),
        ("range(n)", {"range(n + 1)", "range(n - 1)"}),
        ("min(a, b)", {"max(a, b)"}),
        ("x.abs()", {"(x)"}),
        ("x += 1", {"x = 1", "x -= 1", "pass", "2", "0"}),
        ("f(x, y)", {"f(y, x)", "pass"}),
        ("cuda.syncthreads()", {"pass"}),
        ("a[i:n]", {"a[i + 1:n]", "a[i:n + 1]"}),
    ],
)
def test_one_thing_is_changed(text, expected):
    assert expected <= made(text)


def test_what_makes_no_difference_is_not_changed():
    assert "return (x, x)" not in made("def f():\n    return x, x")
    assert made("add(x, y)") == {"pass"}
    # Nothing looks at the end of a slice in compiled code.
    assert "a[i:n + 1]" not in made("a[i:n]", compiled=True)


def test_mojo_is_changed_as_python_is():
    (task,) = tasks(["a9.4"])
    found = {mutant.change for mutant in mutants(task)}
    loop, sums = "comptime for i in range(rows", "comptime at = i * vectors + j"
    assert f"{loop}): -> {loop} + 1):" in found
    assert f"{sums} -> comptime at = (i * vectors - j)" in found
    assert not any("comptime_" in m.marked for m in mutants(task))


@pytest.mark.parametrize("name", catalog.ids())
def test_mutants_are_files_of_one_change(name):
    for task in catalog.load(name).tasks:
        found = mutants(task)
        texts = Counter((m.path, m.marked) for m in found)
        assert not texts or max(texts.values()) == 1
        for mutant in found[::25]:
            assert mutant.path.endswith(".mojo") or ast.parse(mutant.text)
            assert "SOLUTION" not in mutant.text and mutant.devices
        assert sample(task, 3) == sample(task, 3)


def test_survivors_that_are_listed_are_mutants():
    """An entry of survivors.toml goes when the line that it is about changes."""
    names = {task for task, _, _ in same_as_reference()}
    known = {(m.task, m.function, m.change) for t in tasks(names) for m in mutants(t)}
    assert same_as_reference() <= known, same_as_reference() - known
