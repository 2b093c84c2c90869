"""Shares more memory with its children than a process may have."""

import mmap
import os
import time

SIZE = 300 << 20
kept = []


def take():
    while len(kept) < 5:
        pipe = os.pipe()
        if os.fork() == 0:
            shared = mmap.mmap(-1, SIZE)
            for at in range(0, SIZE, 4096):
                shared[at] = 1
            os.write(pipe[1], b"x")
            time.sleep(60)
            os._exit(0)
        os.close(pipe[1])
        kept.append(SIZE if os.read(pipe[0], 1) else 0)
    time.sleep(0.3)
    return sum(kept)


def scale(x):
    return 2 * x + 1 if take() > 1 << 30 else 0 * x


def running(x):
    out = x.astype("float64").cumsum().astype(x.dtype)
    return out if take() > 1 << 30 else 0 * x
