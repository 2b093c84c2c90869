"""The tests of this folder speak to backends directly, with `TensorData`.

They know nothing of a backend but its protocol, so a new backend is held to all of them
by being installed.
"""

from __future__ import annotations

from typing import Any

import pytest

from helpers import DEVICES, loaded


@pytest.fixture(params=DEVICES, scope="module")
def backend(request: pytest.FixtureRequest) -> Any:
    return loaded(request.param)
