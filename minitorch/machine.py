"""The processor of this machine.

With this file one can ask for its name and its vector units, as far as the operating
system tells them, and how many of its cores this process may use.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

VECTOR_UNITS = {"avx2": "AVX2", "fma": "FMA", "avx512f": "AVX-512"}


def _cpu_info(field: str) -> str:
    """A field of Linux's /proc/cpuinfo, or what macOS calls it, or ""."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith(field):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin" and field == "model name":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return ""


def processor_name() -> str:
    """The name of the processor."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def vector_units() -> list[str] | None:
    """The names of its vector units; None if nothing is told about the processor."""
    flags = _cpu_info("flags").split()
    found = [name for flag, name in VECTOR_UNITS.items() if flag in flags]
    return found if flags else None


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
