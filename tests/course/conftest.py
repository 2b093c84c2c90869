"""What all tests of the course share: one process that their checks run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assignments.runner import Runner


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """Imports PyTorch, Numba and Hypothesis once, and forks for each job."""
    with Runner() as made:
        yield made
