"""Sends a .npy file with a pickle, and one with an impossible shape."""

import os
import struct
import sys

PICKLE = b"cos\nsystem\n(S'touch /tmp/minitorch-attack-was-here'\ntR."


def npy(descr, shape, body):
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n"
    size = struct.pack("<H", len(header))
    return b"\x93NUMPY\x01\x00" + size + header.encode() + body


def scale(x):
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    number, worker = frame.f_locals["request"]["id"], frame.f_locals["self"]
    kind = ("|O", (1,), PICKLE) if x.size else ("<f4", (2**62, 8), b"")
    data = npy(*kind)
    tree = f'{{"d":[["id","{number}"],["is","ok"],["value",{{"a":0}}]]}}'
    header = f'{{"value":{tree},"arrays":[{len(data)}]}}'.encode()
    frame_start = struct.pack("<4sI", b"MTG1", len(header))
    worker.connection.sendall(frame_start + header + data)
    os._exit(0)


running = scale
