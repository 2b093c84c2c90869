"""Many texts at once, as they come: how a model is served.

    >>> engine = Engine(model, blocks=256)
    >>> engine.add([1, 2, 3], max_new_tokens=20)

Engine, Event          texts come, are written together, and go
BlockPool              who has which block of the memory
PagedCache             keys and values in blocks
"""

from __future__ import annotations

from minitorch.serving.blocks import BlockPool, OutOfBlocksError
from minitorch.serving.cache import PagedCache
from minitorch.serving.engine import Engine, Event

__all__ = ["BlockPool", "Engine", "Event", "OutOfBlocksError", "PagedCache"]
