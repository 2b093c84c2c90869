"""Honest solutions in many styles: they are allowed, and they earn their points."""

from __future__ import annotations

import pytest
from course.honest_solutions import HONEST, text_of, with_variant
from course.solutions import WRONG, reference, run_task, with_mistake, write_files

from assignments import catalog
from assignments.grading import reading
from assignments.grading.examine import NOT_RUN

# One of each assignment, and of each kind of device.
RUN = """a0-15 a0-17 a1-15 a1-16 a2-12 a3-6 a4-8 a4w-5 a5-4 a5-8 a6-6 a7-4 a7-12 a7-14
    a8-4 a10-12 a11-5 a12-6 a12-9 a13-4 a13-14 a13-15 a14-2 a14-9
    a15-4 a15-7 a15-11 a15-13 a15-14 a16-6 a16-9 a16-10 a16-11 a16-12
    a17-2 a17-4 a17-6 a17-7 a18-1 a18-2 a18-5 a18-7""".split()


def test_there_are_enough_variants():
    assert len(HONEST) >= 100
    assert {v.task.partition(".")[0] for v in HONEST} == set(catalog.ids())
    assert len({v.task for v in HONEST}) >= 40


@pytest.mark.parametrize("variant", HONEST, ids=lambda v: v.name)
def test_variant_is_allowed(variant):
    text = text_of(variant)
    assert text != reference(variant.assignment)[variant.path]
    for task in (variant.task, ""):
        found = reading.not_allowed(variant.assignment, variant.file, text, task)
        assert found == "", f"{variant.task}, {variant.what}"


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_mistakes_are_left_to_the_checks(wrong):
    """A mistake is no cheat, with one exception: reaching for NumPy's array."""
    (file,) = [f for f in wrong.assignment.files if f.path == wrong.path]
    text = with_mistake(wrong)[wrong.path]
    found = reading.not_allowed(wrong.assignment, file, text, wrong.task)
    assert found == "" or "uses .storage" in found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.extras] * (name[:2] in ("a4", "a5")))
        for name in RUN
    ],
)
def test_variant_earns_its_points(name, simulator, tmp_path):
    (variant,) = [v for v in HONEST if v.name == name]
    task = variant.assignment.task(variant.task)
    write_files(variant.assignment, tmp_path / "a", with_variant(variant))
    folders = {"cuda_ops": "cuda", "fast_ops": "cpu"}
    here = folders.get(variant.path.partition("/")[0], task.devices[0])
    outcomes = run_task(simulator, task, here, tmp_path / "a", limit=300)
    if here == "cuda" and outcomes[0].status == NOT_RUN:
        pytest.skip(outcomes[0].reason)
    assert outcomes and all(o.share == 1 for o in outcomes), variant.what
