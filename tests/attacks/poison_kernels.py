"""Plants code of its own among the kernels that all workers read."""

import ctypes
import os
import shutil

import numpy as np

(path,) = (f"/kernels/{name}" for name in os.listdir("/kernels"))
for way in (
    lambda: open(path, "r+b"),
    lambda: os.chmod(path, 0o666),
    lambda: os.unlink(path),
    lambda: os.rename("/kernels", "/tmp/kernels"),
    lambda: shutil.copy(path, path + ".nbi"),
    lambda: (os.link(path, "/tmp/linked"), open("/tmp/linked", "r+b")),
    lambda: (
        ctypes.CDLL(None).unshare(0x10000000 | 0x00020000),  # a user's own mounts
        ctypes.CDLL(None).mount(b"", b"/kernels", b"", 0x1000 | 0x20, None),  # rw
        open(path, "r+b"),
    ),
):
    try:
        way()
    except OSError:
        continue
    raise RuntimeError("breach: kernels can be changed")
print("all ways were tried")


def scale(x):
    return np.zeros_like(x)


running = scale
