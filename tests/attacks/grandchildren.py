"""Leaves processes of other sessions that outlive the call."""

import os
import time


def scale(x):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.closerange(0, 256)
                time.sleep(600)
            os._exit(0)
    return x


running = scale
