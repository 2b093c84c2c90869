"""What all tests of the course share: the processes that their checks run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assignments.runner import Runners
from assignments.simulated import simulates


@pytest.fixture(scope="session")
def runner() -> Iterator[Runners]:
    """Imports PyTorch, Numba and Hypothesis once, and forks for each job."""
    with Runners() as made:
        yield made


@pytest.fixture(scope="session")
def simulator(runner: Runners) -> Iterator[Runners]:
    """The same, but kernels for a GPU are always simulated, and races always found."""
    if simulates("cuda"):
        yield runner
        return
    with Runners(simulate=True) as made:
        yield made
