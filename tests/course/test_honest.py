"""Honest solutions in many styles: the reader allows them, and they earn their points."""

from __future__ import annotations

import pytest
from course.honest_solutions import HONEST, text_of
from course.solutions import reference

from assignments import catalog
from assignments.grading import reading


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
