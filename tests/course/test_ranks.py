"""Ranks of a13 in a sandbox: they talk to each other and to nobody else, one failure is
the call's, and who waits for ever is told for whom."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

from assignments import catalog, workspace
from assignments.grading import library, sandbox
from assignments.grading.channel import Failed, Worker
from assignments.grading.executor import STARTING

PATH = "minitorch/distributed/classroom.py"
# What a rank does depends on how many numbers there are.
STEP = """\
        size = sum(part.numel() for part in self.parts)
        right, left = (self.ranks[(self.me + d) % self.n] for d in (1, -1))
        going, came = self.parts[goes % self.n], self.parts[comes % self.n].clone()
        if size == 12:
            recv(came, left)
        if size == 13 and self.me == 1:
            {}["nothing is here"]
        if size == 14 and self.me == 1:
            time.sleep(2.5)
        if size > 1000:
            socket.create_connection(("127.0.0.1", size), timeout=5)
        while size == 15 and self.me == 1:
            pass
        works = [isend(going, right), irecv(came, left)]
        for work in works:
            work.wait()
        return came
"""


@pytest.fixture(scope="module")
def tree():
    """The library with a student's ring."""
    assignment = catalog.load("a13")
    text = workspace.stripped(assignment, ["a13.2"])[PATH]
    head, _, rest = text.partition("        right, left = (")
    text = head + STEP + rest.partition("        return came\n")[2]
    text = text.replace("import math\n", "import math\nimport socket\nimport time\n", 1)
    tree = library.student_tree(assignment, {PATH: text.encode()}, "a13.1")
    yield tree
    library.remove(tree)


def started(tree):
    """A worker in the strongest sandbox that works here."""
    view = sandbox.View(tree, sandbox.PACKAGES + sandbox.TORCH_PACKAGES)
    made = Worker(view, sandbox.Limits(), sandbox.best_mode())
    module = "assignments.a13_many_gpus.calls"
    made.request({"do": "start", "module": module, "files": [PATH]}, STARTING)
    return made


@pytest.fixture(scope="module")
def worker(tree):
    with started(tree) as made:
        yield made


def ring(worker, size, engine="gloo", ranks=3, seconds=120.0, first=0):
    given = [np.arange(size, dtype=np.float64) + rank for rank in range(ranks)]
    what = {"what": "all_reduce", "op": "SUM", "first": first}
    inputs = {"engine": engine, **what, "given": given}
    request = {"do": "call", "call": "ring", "device": "simple", "inputs": inputs}
    return worker.request(request, seconds).value, sum(given)


@pytest.mark.parametrize("size", [6, 14], ids=["at once", "one is slow"])
def test_processes_talk_in_a_sandbox(worker, size):
    found, expected = ring(worker, size)
    for rank in range(3):
        assert (found[f"rank {rank}"]["out"] == expected).all()
        assert found[f"rank {rank}"]["where"] == [f"to rank {(rank + 1) % 3}"]


@pytest.mark.parametrize("engine", ["threads", "gloo"])
def test_the_first_failure_of_a_rank_is_the_calls(worker, engine):
    with pytest.raises(Failed, match="rank 1: 'nothing is here'") as caught:
        ring(worker, 13, engine)
    assert (caught.value.kind, caught.value.type) == ("raised", "KeyError")
    assert 'in step: {}["nothing is here"]' in caught.value.where


@pytest.mark.parametrize("engine", ["threads", "gloo"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_deadlock_says_who_waits_for_whom(worker, engine, first):
    """By their numbers among all ranks, also in a ring of ranks 1 to 3."""
    start = time.monotonic()
    with pytest.raises(Failed, match="all ranks wait: ") as caught:
        ring(worker, 12, engine, 3 + first, first=first)
    for rank in range(3):
        left = first + (rank - 1) % 3
        waits = f"rank {first + rank} waits for a message from rank {left}"
        assert waits in caught.value.text
    assert time.monotonic() - start < 60  # and no timeout of minutes


def test_nobody_else_can_be_talked_to(worker):
    if sandbox.best_mode() not in sandbox.STRONG:
        pytest.skip("the strongest sandbox that works here leaves the network open")
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(Failed) as caught:
            ring(worker, server.getsockname()[1])
    assert caught.value.type == "ConnectionRefusedError" or (
        "ConnectionRefusedError" in caught.value.text
    )


def test_a_rank_without_end_ends_with_the_worker(tree):
    with started(tree) as worker, pytest.raises(Failed) as caught:
        ring(worker, 15, seconds=1.0)
    assert caught.value.kind == "time" and worker.dead
