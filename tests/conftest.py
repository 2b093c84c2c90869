"""What pytest sets up for all tests: the `device` fixture and hypothesis profiles.

A test that takes `device` runs once on every installed device, and is skipped, with the
reason, on one that cannot be used here.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from helpers import DEVICES, EXAMPLES, loaded

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=EXAMPLES,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
settings.register_profile(
    "thorough",
    parent=settings.get_profile("ci"),
    derandomize=False,
    max_examples=500,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """The name of an installed device."""
    loaded(request.param)
    return request.param


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs on the device "cuda", so that `-m cuda` selects it."""
    for item in items:
        values = getattr(item, "callspec", None)
        if values is not None and "cuda" in map(str, values.params.values()):
            item.add_marker(pytest.mark.cuda)
