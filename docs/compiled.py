"""What `minitorch.compile` makes of a softmax that is written out.

    python docs/compiled.py

prints which operations became one, the Python file that was written for them, and how
long they take on this machine with and without it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import minitorch as torch
from fast_ops.fused import FLAT, text
from minitorch.compiler import explain
from minitorch.compiler.recorder import Fused, Recorder


def softmax(x: Any) -> Any:
    """x [R, N] -> [R, N], by five operations."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def loop() -> str:
    """The file that is written for it."""
    told: list[Fused] = []
    with Recorder(told):
        out = softmax(torch.ones(4, 4))
    del out
    program = told[0].program
    return text(program, (FLAT,), program.kept, False)


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of 30 calls, after the first."""
    times = []
    for _ in range(31):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[1:])


def main() -> None:
    x = torch.randn(2048, 1024)
    print(explain(softmax, x), end="\n\n")
    print(loop())
    compiled = torch.compile(softmax)
    assert (compiled(x) == softmax(x)).all()
    print(f"as it is {milliseconds(lambda: softmax(x)):.2f} ms", end=", ")
    print(f"compiled {milliseconds(lambda: compiled(x)):.2f} ms")


if __name__ == "__main__":
    main()
