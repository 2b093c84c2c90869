"""Stops its own process, and thereby its clocks."""

import os
import signal


def scale(x):
    os.kill(os.getpid(), signal.SIGSTOP)


running = scale
