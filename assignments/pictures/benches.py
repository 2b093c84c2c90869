"""Pictures of the pages with measurements, drawn from the tables that stand there.

With this file a page and its pictures cannot drift apart: a new table, pasted from what
`minitorch bench` wrote, makes new pictures. How many operations and bytes a row has is
known to the cases that were timed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from assignments.catalog import LIBRARY
from assignments.pictures import picture
from minitorch.bench import cases, pictures
from minitorch.bench.harness import Timing
from minitorch.bench.inputs import Case
from minitorch.bench.report import Limits, Result
from minitorch.scenes import Scene, part

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * SECONDS[unit]


def _page(name: str) -> str:
    return (LIBRARY / "docs" / f"{name}.md").read_text()


def limits_in(page: str) -> Limits:
    """The limits of the machine that a page names."""
    found = {k: float(n) for k, n in re.findall(r"^- (\w+): (\d+\.?\d*)$", page, re.M)}
    flops, bandwidth = 1e9 * found["peak_gflops"], 1e9 * found["bandwidth_gb_s"]
    reading = 1e9 * found.get("read_bandwidth_gb_s", bandwidth / 1e9)
    cache = 2**20 * found.get("cache_mib", 0.0)
    tensor = 1e9 * found.get("peak_tf32_gflops", 0.0)
    return Limits(flops, bandwidth, reading, cache, tensor)


def results_in(page: str, timed: Iterable[Case], limits: Limits) -> list[Result]:
    """The rows of a page's tables that are among these cases, in the cases' order."""
    rows = {}
    for line in re.findall(r"^\| (.*) \|$", page, re.M):
        what, *cells = line.split(" | ")
        if len(cells) == 6 and what != "what":
            rows[what.removesuffix(": WRONG RESULT")] = what, cells
    found = []
    for case in timed:
        if case.name in rows:
            what, (ours, theirs, _, _, rate, _) = rows[case.name]
            timing = Timing([_exactly(case, ours, rate)], [_seconds(theirs)])
            found.append(Result.of(case, timing, limits, "WRONG" in what))
    return found


def _exactly(case: Case, time: str, rate: str) -> float:
    """Our seconds, by the row's time or by its rate, whichever has more digits."""
    number, _, unit = rate.strip().partition(" ")
    if len(number.strip("0").replace(".", "")) <= len(re.sub(r"\D", "", time)):
        return _seconds(time)
    return (case.flops if unit == "GFLOP/s" else case.bytes) / (1e9 * float(number))


# --------------------------------------------------------------------------- the pages


def on_cpu(families: Iterable[str]) -> tuple[Limits, list[Result]]:
    """Rows of docs/bench_cpu.md; "matmul ladder" stands for the rungs."""
    page, timed = _page("bench_cpu"), []
    for family in families:
        name, _, rungs = family.partition(" ")
        timed += cases.ladder_cases(name) if rungs else cases.FAMILIES[name]()
    limits = limits_in(page)
    return limits, results_in(page, timed, limits)


def on_gpu(families: Iterable[str]) -> tuple[Limits, list[Result]]:
    """Rows of docs/bench_gpu.md; "matmul ladder" stands for the rungs."""
    from cuda_ops.ladders import reduce
    from cuda_ops.matmul import matmul
    from minitorch.bench.gpu_cases import FAMILIES, LADDER_SIZES

    page, timed = _page("bench_gpu"), []
    ladders = {"matmul": matmul.LADDER, "reduce": reduce.LADDER}
    for family in families:
        name, _, rungs = family.partition(" ")
        all_rungs = cases.rungs_of(
            name, ladders.get(name, ()), LADDER_SIZES.get(name, 1)
        )
        timed += all_rungs if rungs else FAMILIES[name]()
    limits = limits_in(page)
    return limits, results_in(page, timed, limits)


def _ladder(found: tuple[Limits, list[Result]]) -> Scene:
    limits, rungs = found
    return pictures.ladder(rungs, limits)


@picture("docs/pictures/ladder_matmul_cpu")
def ladder_matmul_cpu() -> Scene:
    return _ladder(on_cpu(["matmul ladder"]))


@picture("docs/pictures/ladder_reduce_cpu")
def ladder_reduce_cpu() -> Scene:
    return _ladder(on_cpu(["reduce ladder"]))


@picture("docs/pictures/ladder_matmul_gpu")
def ladder_matmul_gpu() -> Scene:
    return _ladder(on_gpu(["matmul ladder"]))


@picture("docs/pictures/ladder_reduce_gpu")
def ladder_reduce_gpu() -> Scene:
    return _ladder(on_gpu(["reduce ladder"]))


@picture("docs/pictures/roofline_cpu")
def roofline_cpu() -> Scene:
    limits, results = on_cpu(["matmul", "conv", "elementwise", "sparse"])
    return pictures.roofline(results, on_cpu(["matmul ladder"])[1], limits)


@picture("docs/pictures/roofline_gpu")
def roofline_gpu() -> Scene:
    limits, results = on_gpu(["matmul", "conv", "sparse"])
    return pictures.roofline(results, on_gpu(["matmul ladder"])[1], limits)


@picture("docs/pictures/compilers")
def compilers() -> Scene:
    section = _page("four_compilers").split("### On the CPU")[1]
    section = section.split("### ")[0]
    rows = []
    for name, _, _, numba, _, mojo, _ in _cells(section, 7):
        if numba and mojo:
            marks = [[float(numba), 2], [1.0, 0]]
            rows.append([name, [[float(mojo), 1]], marks, [mojo, numba]])
    items = [["Mojo", 1, "bar"], ["Numba", 2, "mark"], ["PyTorch", 0, "mark"]]
    bars = part(
        "bars", rows=rows, end=2.3, width=330, ticks=[[n, f"{n}"] for n in range(3)],
        xlabel="time over PyTorch's; at the right: Mojo, Numba",
    )  # fmt: skip
    return [[part("legend", items=items)], [bars]]


def _cells(text: str, count: int) -> list[list[str]]:
    """The rows of a text's tables that have a name and so many cells."""
    table = re.findall(r"^\|(.*)\|$", text, re.M)
    rows = [[cell.strip() for cell in row.split("|")] for row in table]
    return [row for row in rows if len(row) == count and row[0].strip("-: ")]


@picture("docs/pictures/profile")
def profile() -> Scene:
    found = re.findall(
        r"^(\w[\w.]*) +\d+ +([\d.]+) (ms|us) +([\d.]+) (ms|us) .*",
        _page("profiler"),
        re.M,
    )
    rows = []
    for name, own, unit, whole, whole_unit in found:
        mine, total = _seconds(f"{own} {unit}"), _seconds(f"{whole} {whole_unit}")
        parts = [[1e3 * mine / 5, 1], [1e3 * (total - mine) / 5, -1]]
        rows.append([name, parts, [], [f"{1e3 * mine / 5:.2f}"]])
    items = [["its own time", 1, "bar"], ["in rows inside of it", -1, "bar"]]
    bars = part(
        "bars", rows=rows, end=11.5, width=420, xlabel="ms of a step",
        ticks=[[n, f"{n}"] for n in range(0, 12, 2)],
    )  # fmt: skip
    return [[part("legend", items=items)], [bars]]
