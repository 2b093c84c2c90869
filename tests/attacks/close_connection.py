"""Closes every descriptor and goes on."""

import os
import time


def scale(x):
    os.closerange(0, 256)
    time.sleep(60)


running = scale
