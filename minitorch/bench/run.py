"""Run cases one after the other and collect the results.

With this file one can measure from Python what `minitorch bench` measures on the
command line: `measure(all_cases(["matmul"]), threads=2)`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minitorch.bench.cases import (
    FAMILIES,
    LADDER_SIZES,
    all_cases,
    ladder_cases,
    mojo_ladder,
)
from minitorch.bench.harness import Timing, compare
from minitorch.bench.inputs import Case, put_inputs_on, torch_module
from minitorch.bench.report import Limits, Result
from minitorch.machine import processor_name, vector_units

CHECKS = 3  # calls whose results are compared before the times are taken


@dataclass(frozen=True)
class Bench:
    """A device, with what can be timed on it and how.

    Attributes:
        machine: its name, its limits and the versions in use, for the head of a table.
        limits: what it can do at most.
        families: that have cases.
        cases: of the named families, or of all.
        ladder: the rungs of a family's ladder on square matrices of some size.
        sizes: the families that have a ladder, with the size if none is given.
        compare: times two functions.
    """

    machine: dict[str, Any]
    limits: Limits
    families: Collection[str]
    cases: Callable[[list[str] | None], Iterable[Case]]
    ladder: Callable[[str, int | None], Iterable[Case]]
    sizes: Mapping[str, int]
    compare: Callable[..., Timing]


def bench_on(device: str, threads: int) -> Bench:
    """What to do on "cpu" or "mojo", with so many threads, or on "cuda".

    Raises:
        ValueError: nothing is timed on that device.
        RuntimeError: there is no GPU.
    """
    if device in ("cpu", "mojo"):
        return _bench_on_host(device, threads)
    if device != "cuda":
        raise ValueError(
            f"bench: the device is {device!r}; only 'cpu', 'mojo' and 'cuda' are timed"
        )
    from minitorch.backend import get_backend
    from minitorch.bench import gpu_cases as gpu
    from minitorch.bench.gpu_harness import compare_on_gpu

    get_backend("cuda")
    if not torch_module().cuda.is_available():
        raise RuntimeError(
            "bench: the device is 'cuda', but this PyTorch sees no GPU to compare with"
        )
    put_inputs_on(device)
    limits = gpu_limits()
    return Bench(
        describe_gpu(limits), limits, gpu.FAMILIES, gpu.gpu_cases, gpu.gpu_ladder,
        gpu.LADDER_SIZES, compare_on_gpu,
    )  # fmt: skip


def _bench_on_host(device: str, threads: int) -> Bench:
    from minitorch.backend import get_backend

    set_threads(threads)
    get_backend(device)
    put_inputs_on(device)
    limits = machine_limits()
    machine = describe(limits, threads)
    if device == "cpu":
        return Bench(
            machine, limits, FAMILIES, all_cases, ladder_cases, LADDER_SIZES, compare
        )
    from mojo_ops import bridge, build

    bridge.set_num_threads(threads)
    machine["mojo"] = build.version()
    families = [name for name in FAMILIES if name != "epoch"]
    cases = lambda names: all_cases(names or families)
    sizes = {"matmul": LADDER_SIZES["matmul"]}
    return Bench(machine, limits, families, cases, mojo_ladder, sizes, compare)


def set_threads(threads: int) -> None:
    """Let both sides use `threads` threads.

    PyTorch comes first, so that it finds the OpenMP library that it brings: with the
    system's, which Numba loads, some of its functions (exp, tanh) take 50 times longer.

    Raises:
        ValueError: Numba has not so many. PyTorch takes more, and crashes at its end.
    """
    from numba import config

    most = config.NUMBA_NUM_THREADS
    if threads > most:
        raise ValueError(
            f"bench: --threads is {threads}; expected at most {most} (set the "
            f"environment variable NUMBA_NUM_THREADS for more)"
        )
    torch_module().set_num_threads(threads)
    import fast_ops.threads

    fast_ops.threads.set_num_threads(threads)


def machine_limits() -> Limits:
    """What this machine can do, measured with the threads that are set."""
    from fast_ops.limits import bandwidth, cache_bytes, peak_flops, read_bandwidth

    return Limits(peak_flops(), bandwidth(), read_bandwidth(), cache_bytes())


def describe(limits: Limits, threads: int) -> dict[str, Any]:
    """The machine and the versions that a table of results has to name."""
    import numba

    import fast_ops.threads
    from minitorch import __version__

    return {
        "processor": " ".join([processor_name(), *(vector_units() or [])[-1:]]),
        "cores": os.cpu_count(),
        "threads": threads,
        "threading_layer": fast_ops.threads.threading_layer(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "not set"),
        "peak_gflops": round(limits.flops / 1e9, 1),
        "bandwidth_gb_s": round(limits.bandwidth / 1e9, 1),
        "read_bandwidth_gb_s": round(limits.reading / 1e9, 1),
        "cache_mib": round(limits.cache / 2**20, 1),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "torch": torch_module().__version__,
        "minitorch": __version__,
    }


def gpu_limits() -> Limits:
    """What the GPU can do, measured."""
    from cuda_ops.limits import bandwidth, peak_flops, tensor_rate
    from cuda_ops.runtime.device import properties

    both_ways, peak = bandwidth(), peak_flops()
    cache = float(properties().l2_cache_size)
    return Limits(peak, both_ways, both_ways, cache, peak * tensor_rate())


def describe_gpu(limits: Limits) -> dict[str, Any]:
    """The GPU and the versions that a table of results has to name."""
    import numba_cuda

    from minitorch import __version__, cuda

    torch = torch_module()
    return {
        "gpu": cuda.get_device_name(),
        "peak_gflops": round(limits.flops / 1e9),
        "peak_tf32_gflops": round(limits.tensor / 1e9),
        "bandwidth_gb_s": round(limits.bandwidth / 1e9),
        "python": platform.python_version(),
        "numba_cuda": numba_cuda.__version__,
        "torch": torch.__version__,
        "cuda_of_torch": torch.version.cuda,
        "minitorch": __version__,
    }


def measure(
    cases: Iterable[Case],
    limits: Limits,
    seconds: float = 3.0,
    each: Callable[[Result], None] | None = None,
    compare: Callable[..., Timing] = compare,
) -> list[Result]:
    """Time all cases.

    Args:
        each: called with a result as soon as it is there.
        compare: how two functions are timed, `harness.compare` or one for a GPU.
    """
    results = []
    for case in cases:
        ours, theirs = case.build()
        wrong = is_wrong(case, ours, theirs)
        timing = (case.compare or compare)(ours, theirs, seconds=seconds)
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
