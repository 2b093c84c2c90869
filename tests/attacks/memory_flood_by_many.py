"""Takes all memory with many processes, each within limits."""

import os
import time


def scale(x):
    for _ in range(30):
        try:
            if os.fork() == 0:
                kept = bytearray(b"x" * (200 << 20))
                time.sleep(60)
                kept.clear()
        except (OSError, MemoryError):
            pass
    time.sleep(60)
    return x


running = scale
