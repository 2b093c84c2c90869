"""Steps of writing that are started before the host knows what they read.

With this file no GPU waits for the host between two tokens (`Ahead`). A step that draws
nothing is one graph, and it ends by writing the chosen tokens to where it begins by
reading them. So the host starts several steps at once, and then as many more, before it
reads the tokens of the first ones:

    GPU     | tokens 5 .. 12    | tokens 13 .. 20   | tokens 21 .. 28 ...
    host     start 13 .. 20,     reads 5, 6, .. 12,  start 21 .. 28, reads 13, ...

Where a text ends nobody reads the last ones; that is their whole cost. Few tokens, and
those at the end of the cache, are started one by one.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minitorch.cuda_graphs import make_graphed_step

if TYPE_CHECKING:
    from minitorch.models.cache import KVCache
    from minitorch.tensor import Tensor

# Steps that are one start, and for how many tokens that is worth its preparation.
RUN, LONG = 8, 96


class Ahead:
    """A step ids [B, 1] -> tokens [B] that chooses without chance, on a GPU.

    Attributes:
        step: what takes the ids; from the third call on it replays a graph.
        started: the place in the text of the next token to start.
        run: how many are started at once.
        runs: the place behind each run that was started, and an event behind it.
    """

    def __init__(
        self, choose: Callable[[Tensor], Tensor], cache: KVCache, batch: int
    ) -> None:
        from cuda_ops.told import Told
        from minitorch.cuda import device

        self.choose, self.cache = choose, cache
        with device(cache.slot.device):
            self.told = Told(cache.max_length, batch)
        self.step = make_graphed_step(self._step, warnings.warn)
        self.started, self.run = 0, 1
        self.runs: deque[tuple[int, Any]] = deque()

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
        if not self.started:
            self.started = length
            self.run = RUN if length + LONG <= self.cache.max_length else 1
        while self.started <= min(length + max(self.run, 2), self.cache.max_length):
            self._start()
        while self.runs[0][0] <= length:
            self.runs.popleft()
        self.runs[0][1].synchronize()
        return self.told.on_host[length - 1].tolist()

    def _start(self) -> None:
        """Start a run, or at the end one step."""
        from minitorch.cuda import Event, current_stream

        left = self.cache.max_length + 1 - self.started
        times = self.run if self.run <= left else 1
        assert self.step.graph is not None
        self.step.graph.replay(times)
        self.started += times
        event = Event()
        event.record(current_stream(self.cache.slot.device))
        self.runs.append((self.started, event))

    def close(self) -> None:
        """Wait for what nobody will read: it writes to memory that others get.

        At the end of a program nobody does, and there is no driver to ask.
        """
        if self.runs and not sys.is_finalizing():
            self.runs[-1][1].synchronize()
