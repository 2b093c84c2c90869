"""Where the time of a run goes: some of its steps under the profiler.

With this file a run can profile a few steps and go on (`profiled_step`), as
`minitorch train mnist --profile` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from minitorch.profiler import profile, record_function
from minitorch.tensor import Tensor
from minitorch.train.loop import Step

TRACE = "trace.json"
# The first steps compile kernels and make what the optimizer remembers.
SKIPPED, PROFILED = 3, 5
ROWS = 15  # of the table


@contextmanager
def profiled_step(
    step: Step, folder: Path, tell: Callable[[str], None]
) -> Iterator[Step]:
    """`step`, of which calls number 4 to 8 are profiled, with all between them.

    After these, or at the end of the block if they are fewer, `trace.json` is written
    into `folder`, and `tell` gets a table and the file's name.
    """
    prof, running = profile(record_shapes=True), ExitStack()
    calls = 0

    def end() -> None:
        running.close()
        path = folder / TRACE
        prof.export_chrome_trace(path)
        averages = prof.key_averages()
        on_gpu = any(average.cuda_time_total for average in averages)
        order = "cuda_time_total" if on_gpu else "self_cpu_time_total"
        count = sum(span.name == "step" for span in prof.spans)
        tell(averages.table(order, ROWS, f"{count} steps, after {SKIPPED} others"))
        tell(f"wrote {path}; open it at ui.perfetto.dev or in chrome://tracing")

    def watched(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        if calls == SKIPPED + 1:
            running.enter_context(prof)
        with record_function("step"):
            out = step(x, y)
        if calls == SKIPPED + PROFILED:
            end()
        return out

    try:
        yield watched
    finally:
        if calls <= SKIPPED:
            tell(f"nothing was profiled: the run had no more than {SKIPPED} steps")
        elif calls < SKIPPED + PROFILED:
            end()
