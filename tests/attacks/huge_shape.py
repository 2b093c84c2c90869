"""Sends an array without elements whose shape no memory could hold."""

import json
import os
import struct
import sys

HUGE = 10**17
EMPTY = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (0, {HUGE}, {HUGE}), }}"


def npy(text):
    size = struct.pack("<H", len(text) + 1)
    return b"\x93NUMPY\x01\x00" + size + text.encode() + b"\n"


def scale(x):
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    number, worker = frame.f_locals["request"]["id"], frame.f_locals["self"]
    arrays, value = [npy(EMPTY)], {"a": 0}
    tree = {"d": [["id", number], ["is", "ok"], ["value", value]]}
    header = json.dumps({"value": tree, "arrays": [len(a) for a in arrays]}).encode()
    start = struct.pack("<4sI", b"MTG1", len(header))
    worker.connection.sendall(start + header + b"".join(arrays))
    os._exit(0)


running = scale
