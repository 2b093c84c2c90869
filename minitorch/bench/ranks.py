"""Measure with several processes that work together.

With this file a bench starts itself once for each rank (`measured`), by torch's
launcher, and each of these finds what was chosen (`chosen`) and tells what it has
measured (`tell`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


def tell(work: Callable[..., Any], backend: str | None = "gloo") -> None:
    """As a rank: do `work` with what was chosen, and let rank 0 tell its result."""
    from minitorch.distributed import (
        destroy_process_group,
        get_rank,
        init_process_group,
    )

    if backend == "gloo" and hasattr(os, "sched_setaffinity"):  # a core for each rank
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
    init_process_group(backend)
    result = work(*json.loads(os.environ[CHOSEN]))
    if get_rank() == 0:
        print(json.dumps(result))
    destroy_process_group()
