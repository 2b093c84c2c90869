"""Measure with several processes that work together.

With this file a bench starts itself once for each rank (`measured`), by torch's
launcher, and each of these times what all do at once (`together`), and tells what it
has measured (`tell`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

THREADS = "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"
CHOSEN = "MINITORCH_BENCH_RANK"  # set for ranks


def measured(module: str, ranks: int, *what: Any) -> Any:
    """What rank 0 tells of so many processes of `module`, each with one thread."""
    one_thread = dict.fromkeys(THREADS, "1")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, f"--nproc-per-node={ranks}", "-m", module],
        env={**os.environ, **one_thread, CHOSEN: json.dumps(what)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module}: a rank failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def is_rank() -> bool:
    """Whether this process is one that `measured` has started."""
    return CHOSEN in os.environ


def together(run: Callable[[], Any], calls: int, device: str) -> float:
    """Seconds of a call, one of so many in a row, which all ranks begin together."""
    from minitorch.cuda import synchronize
    from minitorch.distributed import barrier

    wait = synchronize if device.startswith("cuda") else lambda: None
    barrier()
    wait()
    began = time.perf_counter()
    for _ in range(calls):
        run()
    wait()
    return (time.perf_counter() - began) / calls


def tell(work: Callable[..., Any]) -> None:
    """As a rank: do `work` with what was chosen, and let rank 0 tell its result.

    Where "cuda" is among that, ranks have a GPU each, and else a core.
    """
    from minitorch.distributed import (
        destroy_process_group,
        get_rank,
        init_process_group,
    )

    chosen, place = json.loads(os.environ[CHOSEN]), int(os.environ["LOCAL_RANK"])
    if "cuda" in chosen:
        import torch

        from minitorch import cuda

        cuda.set_device(place)
        torch.cuda.set_device(place)
    elif hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[place % len(cores)]})
    init_process_group("nccl" if "cuda" in chosen else "gloo")
    result = work(*chosen)
    if get_rank() == 0:
        print(json.dumps(result))
    destroy_process_group()
