"""Checks that only a GPU or only the simulator can run, and what counts then."""

from __future__ import annotations

import numpy as np
import pytest

from assignments import checks, report
from assignments.catalog import Task
from assignments.checks import GPU, SIMULATOR, Check, why_not
from assignments.testing import FAILED, NOT_RUN, PASSED, Outcome, run_check

TASK = Task("a9.9", "A task", 4.0, ("cuda",), partial=True)


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
def test_a_check_says_where_it_cannot_run(monkeypatch, simulated):
    monkeypatch.setattr(checks, "simulates", lambda device: simulated)
    assert ("needs a GPU" in why_not(made(GPU), "cuda")) == simulated
    assert ("simulator" in why_not(made(SIMULATOR), "cuda")) == (not simulated)
    assert why_not(made(""), "cuda") == ""
    outcome = run_check(made(GPU), "cuda")
    assert outcome.status == (NOT_RUN if simulated else PASSED)


def outcome(status: str) -> Outcome:
    return Outcome("a9.9", status, "cuda", status, float(status == PASSED), status)


def test_what_did_not_run_does_not_count():
    assert report.points_of(TASK, [outcome(PASSED), outcome(NOT_RUN)]) == 4
    both = [outcome(PASSED), outcome(FAILED), outcome(NOT_RUN)]
    assert report.points_of(TASK, both) == 2
    assert report.points_of(TASK, [outcome(NOT_RUN)]) == 0
