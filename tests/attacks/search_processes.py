"""Reads other processes: command lines, variables, memory."""

import glob
import os
import re

import numpy as np

seen = []
for path in glob.glob("/proc/[0-9]*"):
    for name in ("cmdline", "environ", "maps"):
        try:
            with open(f"{path}/{name}", "rb") as file:
                seen.append(file.read())
        except OSError:
            pass
    if path != f"/proc/{os.getpid()}":
        try:
            with open(f"{path}/mem", "rb+") as file:
                file.seek(0x400000)
                file.read(1)
            seen.append(b"a secret of the tests")
        except OSError:
            pass
found = re.search(rb"a secret of the tests|pytest", b"".join(seen))
assert not found, "breach: sees the grader"


def scale(x):
    return np.zeros_like(x)


running = scale
