"""Sends a dict of 150,000 names."""

import json
import os
import struct
import sys


def scale(x):
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    number, worker = frame.f_locals["request"]["id"], frame.f_locals["self"]
    arrays, value = [], {"d": [[str(n), None] for n in range(150_000)]}
    tree = {"d": [["id", number], ["is", "ok"], ["value", value]]}
    header = json.dumps({"value": tree, "arrays": [len(a) for a in arrays]}).encode()
    start = struct.pack("<4sI", b"MTG1", len(header))
    worker.connection.sendall(start + header + b"".join(arrays))
    os._exit(0)


running = scale
