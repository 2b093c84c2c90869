"""A group of workers has one deadline and one verdict, and ends as a whole."""

from __future__ import annotations

import time

import numpy as np
import pytest
from grading.mini_course import LIMITS, PATH, SOLUTION, UNTIMED

from assignments.grading import library, sandbox
from assignments.grading.channel import Failed, Worker
from assignments.grading.group import Group

# With two numbers it never ends, with three it raises an error.
STUCK = SOLUTION.replace(
    "    for i in range(x.size):",
    "    while x.size == 2:\n        pass\n"
    "    if x.size == 3:\n        raise KeyError('x')\n"
    "    for i in range(x.size):",
    1,
)


@pytest.fixture
def group():
    tree = library.student_tree(UNTIMED, {PATH: STUCK.encode()}, "a99.1")
    mode = sandbox.best_mode()
    with Group([Worker(sandbox.View(tree), LIMITS, mode) for _ in range(3)]) as made:
        start = {"do": "start", "module": f"assignments.{UNTIMED.slug}.calls"}
        made.request([start] * 3, seconds=120)
        yield made
    library.remove(tree)


def parts(*sizes):
    return [
        {
            "do": "call",
            "call": "scale",
            "device": "python",
            "inputs": {"x": np.zeros(size, np.float32)},
        }
        for size in sizes
    ]


def test_answers_come_in_the_order_of_ranks(group):
    answers = group.request(parts(4, 1, 6), seconds=60)
    assert [answer.value["out"].size for answer in answers] == [4, 1, 6]
    with pytest.raises(ValueError, match="got 2 messages for 3 ranks"):
        group.request(parts(1, 1), seconds=60)


def test_one_that_hangs_ends_all(group):
    with pytest.raises(Failed, match="longer") as caught:
        group.request(parts(4, 2, 4), seconds=2)
    assert caught.value.kind == "time"
    assert all(worker.dead for worker in group.workers)


def test_the_first_failure_is_the_verdict(group):
    start = time.monotonic()
    with pytest.raises(Failed, match="x") as caught:
        group.request(parts(2, 3, 2), seconds=200)
    assert caught.value.kind == "raised" and caught.value.type == "KeyError"
    assert time.monotonic() - start < 100
    assert all(worker.dead for worker in group.workers)
