"""Ignores all signals that can be ignored, and sleeps."""

import signal
import time

for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass


def scale(x):
    while True:
        time.sleep(1000)


running = scale
