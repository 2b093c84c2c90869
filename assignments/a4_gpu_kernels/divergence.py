"""What branches cost a warp: count the warps that are kept at work.

With this file one can say how many instructions the warps of a block issue for a branch
(`branch_cost`), and how many of its warps each step of a sum by halves keeps at work,
for the two ways to number the threads (`busy_divergent`, `busy_contiguous`).

A warp has one program counter for the lanes that run together. Where they disagree
about a branch, it runs both sides, one after the other, each with the lanes that want
it.
"""

from __future__ import annotations

from collections.abc import Sequence

WARP = 32


# BEGIN SOLUTION a4.6
def branch_cost(
    conditions: Sequence[bool], then: int, other: int, warp: int = WARP
) -> int:
    """Instructions that all warps issue for `if condition: ... else: ...`.

    Args:
        conditions: of each thread; threads 0 to warp - 1 are the first warp. The last
            warp may have fewer threads.
        then: instructions of the first side.
        other: instructions of the second side.
        warp: threads of a warp.
    """
    total = 0
    for first in range(0, len(conditions), warp):
        lanes = conditions[first : first + warp]
        total += then if any(lanes) else 0
        total += other if not all(lanes) else 0
    return total


def busy_divergent(block: int, warp: int = WARP) -> list[int]:
    """For each step of `sum_divergent_blocks`, how many warps have a thread that adds.

    Args:
        block: threads of the block, a power of 2. In the steps 1, 2, 4, ... (below
            block) the threads add whose number is a multiple of 2 step.
        warp: threads of a warp.
    """
    busy = []
    step = 1
    while step < block:
        busy.append(len({t // warp for t in range(0, block, 2 * step)}))
        step *= 2
    return busy


def busy_contiguous(block: int, warp: int = WARP) -> list[int]:
    """The same for `sum_contiguous_blocks`: the threads below block / 2, block / 4, ...

    Args:
        block: threads of the block, a power of 2.
        warp: threads of a warp.
    """
    busy = []
    half = block // 2
    while half > 0:
        busy.append((half + warp - 1) // warp)
        half //= 2
    return busy


# END SOLUTION a4.6
