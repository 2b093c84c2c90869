"""The roofline: how fast a kernel can be, from what it computes and what it moves.

With this file one can count the arithmetic of a matrix product (`flops`) and the bytes
that a way to cut it into blocks moves (`traffic`), and say how fast a machine can run
it at most (`roofline`) and what limits it (`limit`).

    attainable FLOP/s = min(peak, intensity * bandwidth)

where the intensity is FLOP for each byte. On a plot of FLOP/s over intensity this is a
roof: it rises with the bandwidth up to the ridge, and is flat from there on.
"""

from __future__ import annotations

from typing import NamedTuple


class Roof(NamedTuple):
    """Where a kernel is under the roof.

    Attributes:
        flops: that it computes.
        bytes: that it moves from and to memory.
        intensity: FLOP for each byte.
        attainable: FLOP/s at most.
        limit: what keeps it from being faster, "memory" or "arithmetic".
    """

    flops: int
    bytes: int
    intensity: float
    attainable: float
    limit: str


# BEGIN SOLUTION a5.6
def flops(M: int, N: int, K: int) -> int:
    """Operations of a [M, K] @ b [K, N]: a multiplication and an addition for each k.

    The first addition, to zero, counts like the others.
    """
    return 2 * M * N * K


def traffic(
    M: int, N: int, K: int, rows: int = 1, cols: int = 1, itemsize: int = 4
) -> int:
    """Bytes that blocks of rows x cols outputs read and write; 1 x 1 is the definition.

    A block reads all of a's rows and of b's columns that it needs, once. Each output is
    written once. Blocks at the edge have as many rows and columns as are left. Caches
    are not counted: whatever a block reads comes from memory.
    """
    down, across = -(-M // rows), -(-N // cols)
    return itemsize * (across * M * K + down * K * N + M * N)


def limit(intensity: float, peak: float, bandwidth: float) -> str:
    """What limits a kernel: "memory" to the left of the ridge, else "arithmetic".

    Args:
        intensity: FLOP for each byte.
        peak: FLOP/s of the machine.
        bandwidth: bytes/s of the machine.
    """
    return "memory" if intensity < peak / bandwidth else "arithmetic"


def roofline(
    size: tuple[int, int, int],
    block: tuple[int, int],
    peak: float,
    bandwidth: float,
    itemsize: int = 4,
) -> Roof:
    """The roof over a product of `size` (M, N, K) in blocks of (rows, cols) outputs.

    Args:
        size: M, N and K, all at least 1.
        block: rows and columns of a block.
        peak: FLOP/s of the machine.
        bandwidth: bytes/s of the machine.
        itemsize: bytes of a number.
    """
    work, moved = flops(*size), traffic(*size, *block, itemsize)
    intensity = work / moved
    attainable = min(peak, intensity * bandwidth)
    return Roof(work, moved, intensity, attainable, limit(intensity, peak, bandwidth))


# END SOLUTION a5.6
