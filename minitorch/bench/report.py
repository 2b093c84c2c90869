"""Say what was measured: a table, JSON; `pictures.py` draws it.

With this file one can turn the times of `harness.compare` into what a reader wants to
know: both medians, their ratio, GFLOP/s or GB/s, and the share of the machine's limit.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minitorch.bench.harness import Timing
from minitorch.bench.inputs import Case


@dataclass(frozen=True)
class Limits:
    """What the machine can do at most: operations and bytes a second.

    `bandwidth` is for an array that is read and written in place and one that is read,
    `reading` for one that is only read; both of memory. Data of less than `cache` bytes
    may come faster, from a cache. `tensor` is for operations of tensor cores in TF32.
    """

    flops: float
    bandwidth: float
    reading: float
    cache: float
    tensor: float = 0.0

    def share(self, case: Case, seconds: float) -> float | None:
        """The least time that `case` can take here, over the time that it took.

        None where nothing is known: no counts, or data that caches may hold.
        """
        speed = self.reading if case.reads else self.bandwidth
        peak = self.tensor if case.tensor else self.flops
        computing, moving = case.flops / peak, case.bytes / speed
        if moving > computing and case.bytes < self.cache:
            return None
        least = max(computing, moving)
        return least / seconds if least else None


@dataclass(frozen=True)
class Result:
    """One measured case. Times in seconds, rates a second.

    `wrong` says that our result was not PyTorch's; a speed means nothing then. `tensor`
    says that tensor cores multiplied.
    """

    family: str
    name: str
    ours: float
    torch: float
    ratio: float
    goal: float
    flops: float
    bytes: float
    share: float | None
    rounds: int
    discarded: int
    wrong: bool = False
    tensor: bool = False

    @staticmethod
    def of(case: Case, timing: Timing, limits: Limits, wrong: bool = False) -> Result:
        """The result of a case, with its share of what the machine can do."""
        ours = timing.our_median
        return Result(
            family=case.family,
            name=case.name,
            ours=ours,
            torch=timing.their_median,
            ratio=timing.ratio,
            goal=case.goal,
            flops=case.flops,
            bytes=case.bytes,
            share=limits.share(case, ours),
            rounds=len(timing.ours),
            discarded=timing.discarded,
            wrong=wrong,
            tensor=case.tensor,
        )

    @property
    def good(self) -> bool:
        """Whether the result is right and the goal is met."""
        return self.ratio <= self.goal and not self.wrong

    @property
    def rate(self) -> str:
        """GFLOP/s where the operations are the limit, else GB/s."""
        if self.flops and self.flops / max(self.bytes, 1.0) > 4:
            return f"{self.flops / self.ours / 1e9:.1f} GFLOP/s"
        return f"{self.bytes / self.ours / 1e9:.1f} GB/s" if self.bytes else ""


def seconds(value: float) -> str:
    """A time with three digits and a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


HEADINGS = ("what", "ours", "torch", "ratio", "goal", "rate", "share of limit")


def row(result: Result) -> tuple[str, ...]:
    """The cells of one line of the table."""
    share = "" if result.share is None else f"{100 * result.share:.0f} %"
    return (
        f"{result.name}: WRONG RESULT" if result.wrong else result.name,
        seconds(result.ours),
        seconds(result.torch),
        f"{result.ratio:.2f}",
        f"{result.goal:.2f}",
        result.rate,
        share,
    )


def summaries(results: Sequence[Result]) -> list[str]:
    """For each family the median of its ratios, and the worst of them."""
    texts = []
    for family in dict.fromkeys(result.family for result in results):
        mine = [result for result in results if result.family == family]
        worst = max(mine, key=lambda result: result.ratio)
        middle = statistics.median(result.ratio for result in mine)
        texts.append(
            f"{family}: median ratio {middle:.2f}, worst {worst.ratio:.2f} "
            f"({worst.name}), of {len(mine)}"
        )
    return texts


def markdown(results: Sequence[Result]) -> str:
    """The results as a table for a document."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "| --- " + "| ---: " * 6 + "|"]
    lines += ["| " + " | ".join(row(result)) + " |" for result in results]
    return "\n".join(lines) + "\n"


def to_json(results: Sequence[Result], machine: dict[str, Any]) -> str:
    """Everything that was measured, for programs."""
    body = {"machine": machine, "results": [asdict(result) for result in results]}
    return json.dumps(body, indent=2)
