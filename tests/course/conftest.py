"""What all tests of the course share: the processes that their checks run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assignments.runner import Runners


@pytest.fixture(scope="session")
def runner() -> Iterator[Runners]:
    """Imports PyTorch, Numba and Hypothesis once, and forks for each job."""
    with Runners() as made:
        yield made
