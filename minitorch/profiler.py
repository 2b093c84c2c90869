"""Where the time goes: a profiler with PyTorch's names.

With this file one can see what a piece of a program does, operation by operation, down
to the functions of the backend, and how long each takes:

    with profile(record_shapes=True) as prof:
        with record_function("step"):
            train_step(model, optimizer, x, y)
    print(prof.key_averages().table(sort_by="self_cpu_time_total"))
    prof.export_chrome_trace("trace.json")     # open it at https://ui.perfetto.dev

It stands at the seam of `minitorch/executor.py`, so that nothing is paid while it is
off. There are five kinds of spans; those of one thread lie inside of each other:

    user       a block of `record_function`
    operation  the forward or backward pass of one operation: MatMul, MatMulBackward;
               or the step of an optimizer: AdamW.step
    kernel     a function of a backend: matmul, reduce, adam_step
    read       the host asks for numbers, and waits for them: host read: item()
    device     a kernel on a GPU, between two CUDA events on its stream

Times are in microseconds. Source of the names: PyTorch's documentation, torch.profiler.
The trace is in the JSON format of Chrome's trace viewer ("Trace Event Format").
"""

from __future__ import annotations

import enum
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minitorch.executor import Executor, active, executing, settle, users_stack
from minitorch.tensor_data import TensorData


class ProfilerActivity(enum.Enum):
    """What is timed: the host's work, the GPU's, or both."""

    CPU = "cpu"
    CUDA = "cuda"


@dataclass(eq=False)
class Span:
    """One thing that took some time.

    Attributes:
        name: of a block, an operation or a function of a backend.
        kind: "user", "operation", "kernel", "read" or "device".
        start, end: microseconds since the profiler began.
        row: number of the thread; for the kind "device", of the GPU.
        inner: microseconds of the spans directly inside of this one.
        shapes: of the tensors it was given, if they are recorded.
        stack: where the user's program called it, if that is recorded.
        bytes: of the memory of its results, if that is recorded.
    """

    name: str
    kind: str
    start: float
    row: int
    end: float = 0.0
    inner: float = 0.0
    shapes: tuple[tuple[int, ...], ...] = ()
    stack: tuple[str, ...] = ()
    bytes: int = 0
    device_time: float = 0.0

    @property
    def time(self) -> float:
        """Microseconds from start to end."""
        return self.end - self.start


@dataclass
class Average:
    """All spans of one name (and, if so grouped, of one set of shapes)."""

    key: str
    kind: str
    shapes: tuple[tuple[int, ...], ...] = ()
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    cuda_time_total: float = 0.0
    cpu_memory_usage: int = 0

    @property
    def cpu_time(self) -> float:
        """Microseconds of one call, on average."""
        return self.cpu_time_total / self.count


class _Rows(threading.local):
    """The spans of this thread that have begun and not ended."""

    def __init__(self, names: dict[int, str]) -> None:
        self.open: list[Span] = []
        names[threading.get_ident()] = threading.current_thread().name


class profile(Executor):
    """Note all that the block does: `with profile() as prof: ...`.

    Args:
        activities: `ProfilerActivity.CPU`, `.CUDA` or both; both, where there is a
            GPU, if None. CUDA adds the time of each kernel on the GPU.
        record_shapes: keep the shapes of operands.
        profile_memory: count the bytes of results.
        with_stack: keep where the user's program called each operation.

    Raises:
        ValueError: CUDA is asked for and there is no GPU, or an activity is none.
        RuntimeError: another executor is active.
    """

    def __init__(
        self,
        activities: Sequence[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
    ) -> None:
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.spans: list[Span] = []
        self._names: dict[int, str] = {}  # of threads
        self._rows = _Rows(self._names)
        self._timers: list[tuple[Any, ...]] = []  # span, stream, event, event
        self._begin = 0
        self._first: dict[Any, tuple[float, Any]] = {}  # of each GPU: when, an event
        self._on_gpu = _wants_gpu(activities)

    def __enter__(self) -> profile:
        self._exit = ExitStack()
        self._exit.enter_context(executing(self))
        self._begin = self._begin or time.perf_counter_ns()  # used again, it goes on
        return self

    def __exit__(self, *error: Any) -> None:
        self._exit.close()
        if self._timers:
            self._read_timers()

    # ---------------------------------------------------------- what passes the seam

    def operation(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        """Time the forward or backward pass of an operation."""
        with self.span(name, "operation", args):
            return run(*args)

    def call(
        self, name: str, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Time a function of a backend, on the GPU as well if that is wanted."""
        with self.span(name, "kernel", args) as span:
            timed = self._on_gpu and _for_gpu(fn)
            before = self._recorded_event() if timed else None
            result = fn(*args, **kwargs)
            if before is not None:
                self._timers.append((span, _stream(), before, self._recorded_event()))
            if self.profile_memory:
                span.bytes = _bytes_of(result, args)
        return result

    def read(self, name: str, fn: Callable[..., Any], a: TensorData) -> Any:
        """Time how long the host waits for numbers."""
        with self.span(f"host read: {name}", "read", (a,)):
            return fn(a)

    def advance(self, name: str, run: Callable[..., Any], args: Any) -> Any:
        """Time a step that the host counts, as an operation."""
        with self.span(name, "operation"):
            return run(*args)

    @contextmanager
    def span(self, name: str, kind: str, args: Sequence[Any] = ()) -> Iterator[Span]:
        """Note what happens in a block; spans of a thread lie inside of each other."""
        span = Span(name, kind, self._now(), threading.get_ident())
        if self.record_shapes:
            span.shapes = tuple(s for s in map(_shape_of, args) if s is not None)
        if self.with_stack:
            span.stack = users_stack()
        opened = self._rows.open
        opened.append(span)
        try:
            yield span
        finally:
            while span in opened:  # with those of generators that wait within it
                last = opened.pop()
                last.end = self._now()
                if opened:
                    opened[-1].inner += last.time
                    opened[-1].bytes += last.bytes
                self.spans.append(last)

    def _now(self) -> float:
        return (time.perf_counter_ns() - self._begin) / 1000

    def _recorded_event(self) -> Any:
        """A mark in the current stream of the GPU that works now."""
        from minitorch import cuda

        event = cuda.Event(enable_timing=True)
        event.record()
        self._first.setdefault(event.device, (self._now(), event))
        return event

    def _read_timers(self) -> None:
        """What the CUDA events say, as spans of their streams, which do not overlap.

        Where two threads use one stream, a kernel may have waited for the other's.
        """
        found = []
        for span, stream, before, after in self._timers:
            after.synchronize()
            begin, first = self._first[before.device]
            times = (begin + 1000 * first.elapsed_time(e) for e in (before, after))
            found.append((*times, span, stream))
        free: dict[int, float] = {}  # when each stream has done what came before
        for start, end, span, stream in sorted(found, key=lambda timer: timer[:2]):
            start = max(start, free.get(stream, start))
            free[stream] = end = max(end, start)
            span.device_time = end - start
            self.spans.append(Span(span.name, "device", start, stream, end))
        self._timers = []

    # ------------------------------------------------------------------- what it says

    def events(self) -> list[Span]:
        """All spans, in the order in which they began."""
        return sorted(self.spans, key=lambda span: (span.start, -span.end))

    def key_averages(self, group_by_input_shape: bool = False) -> Averages:
        """The spans of each name taken together; `table()` of them prints."""
        found: dict[tuple[Any, ...], Average] = {}
        for span in self.spans:
            if span.kind == "device":
                continue
            shapes = span.shapes if group_by_input_shape else ()
            key = (span.name, span.kind, shapes)
            average = found.setdefault(key, Average(*key))
            average.count += 1
            average.cpu_time_total += span.time
            average.self_cpu_time_total += span.time - span.inner
            average.cuda_time_total += span.device_time
            average.cpu_memory_usage += span.bytes
        return Averages(found.values())

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a JSON file for a trace viewer: a row a thread, and a row a stream."""
        rows: dict[tuple[bool, int], int] = {}
        spans = [
            _chrome_event(span, rows.setdefault(_row_of(span), len(rows)))
            for span in self.events()
        ]
        names = [
            {
                **{"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "ts": 0},
                "args": {"name": f"GPU, stream {at}" if gpu else self._names[at]},
            }
            for (gpu, at), row in rows.items()
        ]
        text = json.dumps({"traceEvents": names + spans, "displayTimeUnit": "ms"})
        Path(path).write_text(text, "utf-8")


class record_function:
    """Name a block of a program, for the profiler: `with record_function("step"):`.

    Without an active profiler it does nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._exit: ExitStack | None = None

    def __enter__(self) -> record_function:
        settle()
        here = getattr(active.executor, "below", active.executor)  # in compiled code
        if isinstance(here, profile):
            self._exit = ExitStack()
            self._exit.enter_context(here.span(self.name, "user"))
        return self

    def __exit__(self, *error: Any) -> None:
        settle()
        if self._exit is not None:
            self._exit.close()
            self._exit = None


@dataclass
class Column:
    """A column of the table: its title, and what it shows of an average."""

    title: str
    show: Callable[[Average], str]
    width: int = field(default=12)


COLUMNS = {
    "count": Column("Calls", lambda a: str(a.count), 8),
    "self_cpu_time_total": Column("Self CPU", lambda a: _time(a.self_cpu_time_total)),
    "cpu_time_total": Column("CPU total", lambda a: _time(a.cpu_time_total)),
    "cpu_time": Column("CPU each", lambda a: _time(a.cpu_time)),
    "cuda_time_total": Column("CUDA total", lambda a: _time(a.cuda_time_total)),
    "cpu_memory_usage": Column("Memory", lambda a: _size(a.cpu_memory_usage)),
}


class Averages(list[Average]):
    """What `key_averages` returns: a list that prints as a table."""

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, header: str = ""
    ) -> str:
        """Lines of text: a row for each name.

        Args:
            sort_by: "count", "cpu_time", "cpu_time_total", "self_cpu_time_total",
                "cuda_time_total" or "cpu_memory_usage", the largest first; None keeps
                the order in which the names came.
            row_limit: print only so many rows.
            header: a line above the table.

        Raises:
            ValueError: another name to sort by.
        """
        if sort_by is not None and sort_by not in COLUMNS:
            raise ValueError(
                f"table: sort_by is {sort_by!r}; expected one of {', '.join(COLUMNS)}"
            )
        rows: list[Average] = list(self)
        if sort_by is not None:
            rows.sort(key=lambda a: getattr(a, sort_by), reverse=True)
        shown = [c for name, c in COLUMNS.items() if self._is_told(name)]
        width = max([len("Name"), *(len(a.key) for a in rows)])
        lines = ["Name".ljust(width) + "".join(c.title.rjust(c.width) for c in shown)]
        for average in rows[:row_limit]:
            cells = (c.show(average).rjust(c.width) for c in shown)
            shapes = f"  {list(average.shapes)}" if average.shapes else ""
            lines.append(average.key.ljust(width) + "".join(cells) + shapes)
        total = sum(average.self_cpu_time_total for average in self)
        lines.append(f"Self CPU time total: {_time(total)}")
        return "\n".join([header, *lines] if header else lines)

    def _is_told(self, name: str) -> bool:
        """Columns of what was not recorded are left out."""
        told = name not in ("cuda_time_total", "cpu_memory_usage")
        return told or any(getattr(average, name) for average in self)


def _wants_gpu(activities: Sequence[ProfilerActivity] | None) -> bool:
    from minitorch import cuda

    if activities is None:
        return cuda.is_available() and not _simulated()
    if not set(activities) <= set(ProfilerActivity):
        raise ValueError(
            f"profile: activities is {activities!r}; each must be a ProfilerActivity"
        )
    if ProfilerActivity.CUDA not in activities:
        return False
    if not cuda.is_available() or _simulated():
        raise ValueError(
            "profile: activities has ProfilerActivity.CUDA, but there is no GPU here; "
            "leave it out to time the host"
        )
    return True


def _simulated() -> bool:
    from numba import config

    return bool(config.ENABLE_CUDASIM)


def _stream() -> int:
    """The stream that work goes to now, as a number: a GPU's, of its default stream."""
    from minitorch.cuda import current_stream

    here: Any = current_stream()
    return int(here.handle or here.device.index)


def _for_gpu(fn: Callable[..., Any]) -> bool:
    """Whether a function of a backend, its own or a default, is for the GPU."""
    owner = getattr(fn, "__self__", None)
    module = fn.__module__ if owner is None else type(owner).__module__
    return module.startswith("cuda_ops.")


def _shape_of(value: Any) -> tuple[int, ...] | None:
    raw = getattr(value, "raw", value)
    return raw.shape if type(raw) is TensorData else None


def _bytes_of(result: Any, args: Sequence[Any]) -> int:
    """Bytes of the storages that a function returned and was not given."""
    given = {id(a.storage) for a in args if type(a) is TensorData}
    parts = result if isinstance(result, tuple) else (result,)
    return sum(
        part.size * part.dtype.itemsize
        for part in parts
        if type(part) is TensorData and id(part.storage) not in given
    )


def _row_of(span: Span) -> tuple[bool, int]:
    """Streams and threads may have the same number."""
    return span.kind == "device", span.row


def _chrome_event(span: Span, row: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if span.shapes:
        told["shapes"] = [list(shape) for shape in span.shapes]
    if span.stack:
        told["stack"] = list(span.stack)
    if span.bytes:
        told["bytes"] = span.bytes
    # In whole nanoseconds, or a sum may be rounded to beyond the end of the outer span.
    start, end = round(1000 * span.start), round(1000 * span.end)
    return {
        **{"ph": "X", "name": span.name, "cat": span.kind, "pid": 0, "tid": row},
        **{"ts": start / 1000, "dur": (end - start) / 1000, "args": told},
    }


def _time(microseconds: float) -> str:
    if microseconds < 1e3:
        return f"{microseconds:.1f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds / 1e6:.2f} s"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"
