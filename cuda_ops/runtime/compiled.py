"""What the compiler makes of a launch: registers, memory, room on a multiprocessor.

With this file one can ask, without a GPU, what a kernel takes of a chip when it is
launched with a grid (`static_facts`): the half of an x-ray that needs no run.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from cuda_ops.runtime.compiler import Arch, to_cubin
from cuda_ops.runtime.launch import Kernel
from cuda_ops.runtime.occupancy import occupancy

# Multiprocessors of a chip of each compute capability: one of those that there are.
PROCESSORS: dict[Arch, tuple[int, str]] = {
    (7, 5): (40, "T4"),
    (8, 0): (108, "A100"),
    (8, 6): (72, "A10"),
    (8, 9): (58, "L4"),
    (9, 0): (132, "H100 and H200"),
    (10, 0): (148, "B200"),
    (12, 0): (170, "RTX 5090"),
}
USES = {"float64": r"\b[a-z][.\w]*\.f64\b", "local": r"\b(?:ld|st)\.local\b"}


def static_facts(
    kernel: Kernel, text: str, arch: Arch, blocks: int, threads: int, shared: int
) -> dict[str, Any]:
    """What is known of a launch before it runs; docs/gpu_kernels.md explains it.

    Args:
        text: the types of the arguments, as `compiler.signature` takes them.
        blocks, threads: of the grid, and of a block.
        shared: bytes of dynamic shared memory.
    """
    if not kernel.runs_on(arch):
        raise ValueError(f"kernel {kernel.name} does not run on sm_{arch[0]}{arch[1]}")
    ptx = kernel.ptx(text, arch)
    code = kernel.code(text, arch) if kernel.only_arch else ptx
    made = to_cubin(code, arch, kernel.max_registers)
    room = occupancy(arch, threads, made.registers, made.shared + shared)
    processors, chip = PROCESSORS[arch]
    waves = blocks / (room.blocks * processors) if room.blocks else None
    return {
        "arch": f"sm_{arch[0]}{arch[1]}",
        "registers": made.registers,
        "spilled_bytes": made.spills,
        "local_bytes": made.local,
        "static_shared_bytes": made.shared,
        "dynamic_shared_bytes": shared,
        "blocks_per_sm": room.blocks,
        "occupancy": room.share,
        "limited_by": room.limit,
        "sms": processors,
        "chip": chip,
        "waves": waves,
        "lines": by_line(ptx),
    }


def by_line(ptx: str) -> dict[str, dict[str, int]]:
    """For each line, "file:number", how many instructions use float64 or local memory.

    The numbers are those of the PTX: of a loop that was unrolled, each copy counts.
    """
    files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"(.*?)"', ptx, re.M))
    found: dict[str, Counter[str]] = {}
    at = "?:0"
    for line in ptx.splitlines():
        place = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)
        if place:
            at = f"{files.get(place[1], '?')}:{place[2]}"
        for name, pattern in USES.items():
            if re.search(pattern, line.split("//")[0]):
                found.setdefault(at, Counter())[name] += 1
    return {at: dict(uses) for at, uses in found.items()}
