"""Settings for the tests of `minitorch.data`."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("data", deadline=None)
settings.load_profile("data")
