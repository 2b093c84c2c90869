"""Steps of writing that are started before the host knows what they read.

With this file no GPU waits for the host between two tokens (`Ahead`). A step that draws
nothing is one graph, and it ends by writing the chosen tokens to where it begins by
reading them. So the host starts some replays in a row, and reads the tokens of the
first while the others run:

    GPU     | token 5 | token 6 | token 7 | ...
    host     start 7,       reads 5,  start 8,       reads 6, ...

Where a text ends nobody reads the last ones; that is their whole cost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from minitorch.cuda_graphs import make_graphed_step
from minitorch.warn import warn

if TYPE_CHECKING:
    from minitorch.models.cache import KVCache
    from minitorch.tensor import Tensor

# Steps that are started behind the one whose tokens are read next.
MORE = 2


class Ahead:
    """A step ids [B, 1] -> tokens [B] that chooses without chance, on a GPU.

    Attributes:
        step: what takes the ids; from the third call on it replays a graph.
        started: the place in the text of the next token to start.
    """

    def __init__(
        self, choose: Callable[[Tensor], Tensor], cache: KVCache, batch: int
    ) -> None:
        from cuda_ops.told import Told
        from minitorch.cuda import Event, device

        self.choose, self.cache = choose, cache
        with device(cache.slot.device):
            self.told = Told(cache.max_length, batch)
        self.step = make_graphed_step(self._step, warn)
        self.marks = [Event() for _ in range(MORE + 1)]
        self.started = 0

    def _step(self, ids: Tensor) -> Tensor:
        from minitorch.cuda import device

        new = self.choose(ids)
        with device(ids.device):
            self.told.hand_on(new.raw, self.cache.slot.raw, ids.raw)
        return new

    def ready(self, length: int) -> bool:
        """Whether a graph goes on with texts of this length; it knows their end."""
        return self.step.graph is not None and length <= self.cache.max_length

    def tokens(self, length: int) -> list[int]:
        """Those behind texts of this length; the ones after them are on their way."""
        from minitorch.cuda import current_stream

        graph, last = self.step.graph, self.cache.max_length
        stream = current_stream(self.cache.slot.device)
        self.started = max(self.started, length)
        while graph is not None and self.started <= min(length + MORE, last):
            graph.replay()
            self.marks[self.started % len(self.marks)].record(stream)
            self.started += 1
        self.marks[length % len(self.marks)].synchronize()
        return self.told.on_host[length - 1].tolist()

    def close(self) -> None:
        """Wait for what nobody will read: it writes to memory that others get.

        At the end of a program nobody does, and there is no driver to ask.
        """
        if self.started and not sys.is_finalizing():
            self.marks[(self.started - 1) % len(self.marks)].synchronize()
        del self.step  # which knows this object, and the cache
