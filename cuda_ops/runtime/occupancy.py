"""How many threads of a kernel fit on a multiprocessor (SM) at a time.

With this file one can compute the theoretical occupancy of a kernel for a chip, without
the chip: `occupancy(arch, threads, registers, shared)`.

A block is only started where its registers, its shared memory, its warps and itself
find room. Few threads on an SM means little work to do while others wait for memory.

Source: NVIDIA, "CUDA C++ Programming Guide", compute capabilities; "CUDA Occupancy
Calculator".
"""

from __future__ import annotations

from typing import NamedTuple

from cuda_ops.simulator.watch import WARP

Arch = tuple[int, int]

REGISTERS = 65_536  # of an SM
REGISTER_UNIT = 256  # registers are given to a warp in multiples of this
MOST_THREADS = 1024  # of a block
WARP_UNIT = 4  # an SM has four parts, each with its own registers


class Limits(NamedTuple):
    """What an SM has room for.

    Attributes:
        threads, blocks: at most at a time.
        shared: bytes of shared memory of the SM.
        block_shared: bytes that one block can have.
        reserved: bytes of shared memory that each block loses to the system.
        shared_unit: a block gets shared memory in multiples of so many bytes.
    """

    threads: int
    blocks: int
    shared: int
    block_shared: int
    reserved: int
    shared_unit: int = 128


KIB = 1024
LIMITS: dict[Arch, Limits] = {
    (7, 5): Limits(1024, 16, 64 * KIB, 64 * KIB, 0, 256),
    (8, 0): Limits(2048, 32, 164 * KIB, 163 * KIB, KIB),
    (8, 6): Limits(1536, 16, 100 * KIB, 99 * KIB, KIB),
    (8, 9): Limits(1536, 24, 100 * KIB, 99 * KIB, KIB),
    (9, 0): Limits(2048, 32, 228 * KIB, 227 * KIB, KIB),
    (10, 0): Limits(2048, 32, 228 * KIB, 227 * KIB, KIB),
    (12, 0): Limits(1536, 24, 100 * KIB, 99 * KIB, KIB),
}


class Occupancy(NamedTuple):
    """How full an SM gets.

    Attributes:
        blocks: blocks of the kernel on an SM at a time.
        share: their threads as a share of what the SM has room for.
        limit: what there is too little of: "threads", "blocks", "registers" or "shared
            memory".
    """

    blocks: int
    share: float
    limit: str


def limits(arch: Arch) -> Limits:
    """The limits of a compute capability.

    Raises:
        ValueError: it is not in the table.
    """
    if arch not in LIMITS:
        known = ", ".join(f"sm_{major}{minor}" for major, minor in LIMITS)
        raise ValueError(
            f"arch: sm_{arch[0]}{arch[1]} is not known; use one of {known}"
        )
    return LIMITS[arch]


def occupancy(arch: Arch, threads: int, registers: int, shared: int) -> Occupancy:
    """How many blocks of `threads` fit, with `registers` each and `shared` bytes.

    None, where one block has more of something than a block can have.

    >>> occupancy((9, 0), 256, 32, 0)
    Occupancy(blocks=8, share=1.0, limit='threads')
    """
    chip = limits(arch)
    warps = -(-threads // WARP)
    per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    warp_slots = REGISTERS // per_warp // WARP_UNIT * WARP_UNIT if registers else 10**6
    units = -(-(shared + chip.reserved) // chip.shared_unit)
    room = {
        "threads": chip.threads // (warps * WARP),
        "blocks": chip.blocks,
        "registers": warp_slots // warps,
        "shared memory": chip.shared // max(units * chip.shared_unit, 1),
    }
    if shared > chip.block_shared:
        room["shared memory"] = 0
    if threads > MOST_THREADS:
        room["threads"] = 0
    limit = min(room, key=room.__getitem__)
    return Occupancy(room[limit], room[limit] * warps * WARP / chip.threads, limit)
