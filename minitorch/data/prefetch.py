"""With this file one can run an iterator in a background thread, so that its next
items are ready when they are asked for: `Prefetcher`.
"""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

ITEM, FAILED, DONE = "item", "failed", "done"


class _Channel:
    """What the two threads share.

    The producer makes an item for each permit it gets, and the consumer returns one
    permit for each item it takes: so at most `depth` items wait or are being made.
    Both queues are SimpleQueues because their `put` may be called from a destructor,
    whatever the interrupted code was doing (queue.Queue would lock itself up).
    """

    def __init__(self, depth: int) -> None:
        self.permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.ready: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.stopped = False
        for _ in range(depth):
            self.permits.put(None)

    def stop(self) -> None:
        self.stopped = True
        self.permits.put(None)  # wakes the producer, should it be waiting


class Prefetcher(Iterator[T], Generic[T]):
    """The items of `source`, made up to `depth` ahead by a thread of their own.

    An exception of the source is raised by `next`, with its traceback. `close`, the
    end of the last reference and the end of the program all stop the thread, once
    the item it is making is made.
    """

    def __init__(self, source: Iterator[T], depth: int) -> None:
        if depth < 1:
            raise ValueError(f"Prefetcher: depth is {depth}; expected 1 or more")
        self._channel = _Channel(depth)
        self._finished = False
        # The thread must not hold a reference to self, or self would never die. A
        # daemon, since Python waits for other threads before it runs `atexit`.
        self._thread = threading.Thread(
            target=_produce,
            args=(source, self._channel),
            name="minitorch-prefetch",
            daemon=True,
        )
        self._thread.start()
        _live.add(self)

    def __iter__(self) -> Prefetcher[T]:
        return self

    def __next__(self) -> T:
        if self._finished:
            raise StopIteration
        kind, value = self._channel.ready.get()
        if kind == ITEM:
            self._channel.permits.put(None)
            return value
        self._finished = True
        if kind == DONE:
            raise StopIteration
        try:
            raise value
        finally:
            # The traceback refers to this frame; do not let the frame refer back.
            del value

    def close(self, timeout: float | None = None) -> None:
        """Stops the thread and waits for it (at most `timeout` seconds)."""
        self._finished = True
        self._channel.stop()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def __del__(self) -> None:
        # No waiting here: this may run in any thread, the producer's included.
        if hasattr(self, "_channel"):
            self._channel.stop()


def _produce(source: Iterator[T], channel: _Channel) -> None:
    """The thread: items into `channel.ready` until the source ends, fails, or nobody
    wants them any more."""
    channel.permits.get()
    while not channel.stopped:
        try:
            item = next(source)
        except StopIteration:
            channel.ready.put((DONE, None))
            return
        except BaseException as error:
            channel.ready.put((FAILED, error))
            return
        channel.ready.put((ITEM, item))
        del item  # or it would live here until the next one is made
        channel.permits.get()


_live: weakref.WeakSet[Prefetcher[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """At the end of the program: a thread that is inside native code while the
    interpreter is torn down can crash it."""
    for prefetcher in list(_live):
        prefetcher.close(timeout=1.0)
