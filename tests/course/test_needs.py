"""Checks and devices that cannot run here, and what counts then."""

from __future__ import annotations

import numpy as np
import pytest

from assignments import catalog
from assignments.catalog import Task
from assignments.checks import GPU, SIMULATOR, Check, why_not
from assignments.grading.examine import NOT_RUN, PASSED, REFUSED, WRONG, Result, part

TASK = Task("a9.9", "A task", 4.0, ("simple", "cuda"), partial=True)


def made(needs: str) -> Check:
    return Check(
        "a9.9",
        "one",
        lambda device: {"out": np.ones(1)},
        lambda draw: {},
        lambda: {"out": np.ones(1)},
        needs=needs,
        examples=1,
    )


@pytest.mark.parametrize("simulated", [False, True])
def test_a_check_says_where_it_cannot_run(simulated):
    assert ("needs a GPU" in why_not(made(GPU), "cuda", simulated)) == simulated
    only = why_not(made(SIMULATOR), "cuda", simulated)
    assert ("simulator" in only) == (not simulated)
    assert why_not(made(""), "cuda", simulated) == ""


def result(status: str) -> Result:
    return Result("a9.9", status, "cuda", status, float(status == PASSED), status)


def test_what_did_not_run_does_not_count():
    assert part(TASK, [result(PASSED), result(NOT_RUN)]) == 1
    assert part(TASK, [result(PASSED), result(WRONG), result(NOT_RUN)]) == 0.5
    assert part(TASK, [result(NOT_RUN)]) is None
    assert part(TASK, [result(REFUSED), result(PASSED)]) == 0


@pytest.mark.parametrize(
    ("parts", "earned", "possible"),
    [
        ({"simple": 1.0, "cuda": 0.5}, 3, 4),
        ({"simple": 1.0, "cuda": None}, 4, 4),  # equal parts for those that ran
        ({"simple": 1.0}, 2, 4),  # cuda can run, and has not yet
        ({"simple": None, "cuda": None}, 0, 0),
        ({}, 0, 4),
    ],
)
def test_points_of_all_devices(parts, earned, possible):
    assert catalog.points(TASK, parts) == earned
    assert catalog.possible(TASK, parts) == possible
