"""The CPU backend: kernels compiled by Numba, on all cores.

With this package `minitorch` runs tensors on the device "cpu" (`fast_ops/backend.py`).
A file holds a family of operations, under the same name as in the other backends.
"""

import os
import sys


def share_cores(ranks: int) -> None:
    """Let each rank of one machine take its share of the cores, if nobody said else.

    If each had a thread on every core, they would stand in each other's way: steps of a
    small GPT took 20 times as long.
    """
    if ranks < 2 or "NUMBA_NUM_THREADS" in os.environ:
        return
    some = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if some else os.cpu_count() or 1
    os.environ["NUMBA_NUM_THREADS"] = str(max(1, cores // ranks))
    if "numba" in sys.modules:  # which read its variables when it was imported
        from numba import config

        try:
            config.reload_config()
        except RuntimeError:  # its threads have started
            del os.environ["NUMBA_NUM_THREADS"]


share_cores(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # which torchrun sets
