"""Run cases one after the other and collect the results.

With this file one can measure from Python what `minitorch bench` measures on the
command line: `measure(all_cases(["matmul"]), threads=2)`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from typing import Any

from minitorch.bench.cases import Case, torch_module
from minitorch.bench.harness import compare
from minitorch.bench.report import Limits, Result

CHECKS = 3  # calls whose results are compared before the times are taken


def set_threads(threads: int) -> None:
    """Let both sides use `threads` threads."""
    import fast_ops.threads

    torch_module().set_num_threads(threads)
    fast_ops.threads.set_num_threads(threads)


def machine_limits() -> Limits:
    """What this machine can do, measured with the threads that are set."""
    from fast_ops.limits import bandwidth, peak_flops

    return Limits(peak_flops(), bandwidth())


def describe(limits: Limits, threads: int) -> dict[str, Any]:
    """The machine and the versions that a table of results has to name."""
    import numba

    import fast_ops.threads
    from minitorch import __version__

    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "threading_layer": fast_ops.threads.threading_layer(),
        "peak_gflops": round(limits.flops / 1e9, 1),
        "bandwidth_gb_s": round(limits.bandwidth / 1e9, 1),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "torch": torch_module().__version__,
        "minitorch": __version__,
    }


def processor_name() -> str:
    """The processor's name, with its vector width where Linux tells it."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read().split("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in first.splitlines())
    lines = {name.strip(): value.strip() for name, _, value in pairs}
    flags = lines.get("flags", "").split()
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else ""
    return " ".join(filter(None, [lines.get("model name", ""), vectors]))


def measure(
    cases: Iterable[Case],
    limits: Limits,
    seconds: float = 3.0,
    each: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Time all cases; `each` is called with a result as soon as it is there."""
    results = []
    for case in cases:
        ours, theirs = case.build()
        wrong = is_wrong(case, ours, theirs)
        timing = compare(ours, theirs, seconds=seconds)
        result = Result.of(case, timing, limits, wrong)
        results.append(result)
        if each is not None:
            each(result)
    return results


def is_wrong(
    case: Case, ours: Callable[[], object], theirs: Callable[[], object]
) -> bool:
    """Whether a case is known to be wrong, or any of a few results is not PyTorch's."""
    if case.agree is None or case.wrong:
        return case.wrong
    expected = theirs()
    return not all(case.agree(ours(), expected) for _ in range(CHECKS))
