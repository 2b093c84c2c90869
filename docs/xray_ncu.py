"""X-rays beside what Nsight Compute measures, on a machine with a GPU and `ncu`.

    python docs/xray_ncu.py [--json FILE] [RUNG ...]

With this file one can see for each rung of the ladders of transposes, sums, matrix
products and softmax whether both say the same: requests, sectors and wavefronts of the
whole launch, registers and theoretical occupancy. Ours are those of three blocks, times
blocks / 3: the launches have blocks that all do the same. `python docs/xray_ncu.py
--launch RUNG` is what ncu runs.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

LD, ST = "mem_global_op_ld.sum", "mem_global_op_st.sum"
METRICS = {
    "load requests": f"l1tex__t_requests_pipe_lsu_{LD}",
    "load sectors": f"l1tex__t_sectors_pipe_lsu_{LD}",
    "store requests": f"l1tex__t_requests_pipe_lsu_{ST}",
    "store sectors": f"l1tex__t_sectors_pipe_lsu_{ST}",
    "wavefronts": "memory_l1_wavefronts_shared",
    "ideal wavefronts": "memory_l1_wavefronts_shared_ideal",
    "registers": "launch__registers_per_thread",
    "occupancy": "sm__maximum_warps_per_active_cycle_pct",
}
# And what tells a copy past the registers (LDGSTS) from a load.
MORE = {
    "copies": "smsp__inst_executed_op_ldgsts.sum",
    "blocks": "launch__grid_size",
}
LADDERS = ("transpose_", "sum_", "matmul_", "softmax_")


def ours(name: str, arch: tuple[int, int]) -> dict[str, float]:
    """The x-ray's numbers for the whole launch, and of the machine code."""
    from assignments.xrays import scene_of

    scene = scene_of(name, None, arch)
    launch, static = scene["launch"], scene["static"]
    x, y, z = launch["blocks"]
    scale = x * y * z / len(launch["sampled"])

    def total(what: str, *kinds: str) -> float:
        lines = [line for f in scene["functions"] for line in f["lines"]]
        parts = [line[kind][what] for line in lines for kind in kinds if kind in line]
        return sum(parts) * scale

    shared = "shared load", "shared store"
    return {
        "load requests": total("requests", "global load"),
        "load sectors": total("sectors", "global load"),
        "store requests": total("requests", "global store"),
        "store sectors": total("sectors", "global store"),
        "wavefronts": total("wavefronts", *shared),
        "ideal wavefronts": total("ideal", *shared),
        "registers": static["registers"],
        "occupancy": 100 * static["occupancy"],
    }


def measured(name: str) -> dict[str, float]:
    """What ncu says of the kernel's first launch."""
    from cuda_ops.ladders.launches import find

    kernel = find(name).kernel
    metrics = ",".join([*METRICS.values(), *MORE.values()])
    run = subprocess.run(
        ["ncu", "--csv", "--page", "raw", "--print-units", "base",
         "--clock-control", "none", "--kernel-name-base", "mangled",
         "--metrics", metrics, sys.executable, __file__, "--launch", name],
        capture_output=True, text=True,
    )  # fmt: skip
    lines = [line for line in run.stdout.splitlines() if line.startswith('"')]
    if not lines:
        raise RuntimeError(f"ncu: {run.stdout[-2000:]} {run.stderr[-2000:]}")
    rows = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"]]
    # Mangled names hold the Python function's: of a template's kernel, its template's.
    of_template = "tile_kernel" if kernel.startswith("transpose_") else kernel
    named = [r for r in rows if kernel in str(r) or of_template in str(r)]
    row = (named or rows)[0]
    found = {**METRICS, **MORE}.items()
    known = {name: row.get(metric, "") for name, metric in found}
    return {n: float(v.replace(",", "")) for n, v in known.items() if v}


def compare(name: str, mine: dict[str, float]) -> dict[str, Any]:
    """Print a line for each number; say where the two differ."""
    chip = measured(name)
    print(f"{name} (of {chip.pop('blocks', 0):,.0f} blocks, "
          f"{chip.get('copies', 0):,.0f} copies past the registers)")  # fmt: skip
    for what in METRICS:
        theirs = chip.get(what)
        same = theirs is not None and abs(mine[what] - theirs) <= 0.005 * mine[what]
        shown = "none" if theirs is None else f"{theirs:,.1f}"
        print(
            f"  {what:18}{mine[what]:>16,.1f}{shown:>16}  {'' if same else 'DIFFERS'}"
        )
    return {"xray": mine, "ncu": chip}


def main() -> None:
    """Compare the rungs that are named, or all."""
    from cuda_ops.ladders.launches import LAUNCHES, find

    words = sys.argv[1:]
    if words[:1] == ["--launch"]:
        find(words[1]).run()
        from cuda_ops.runtime import device

        device.synchronize()
        return
    if shutil.which("ncu") is None:
        sys.exit("xray_ncu: there is no ncu here (it comes with the CUDA toolkit)")
    from cuda_ops.runtime.device import properties

    target = words.pop(1) if words[:1] == ["--json"] else None
    words = words[1:] if target else words
    names = words or [name for name in LAUNCHES if name.startswith(LADDERS)]
    print(f"{'':20}{'x-ray':>16}{'ncu':>16}")
    with ThreadPoolExecutor((os.cpu_count() or 4) // 2) as pool:
        chip = properties(0).major, properties(0).minor
        every = pool.map(lambda name: ours(name, chip), names)
        found = {name: compare(name, mine) for name, mine in zip(names, every)}
    if target:
        with open(target, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
