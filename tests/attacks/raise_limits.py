"""Tries to get its rights and limits back."""

import ctypes
import os
import resource

for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        continue
    raise RuntimeError("breach: limits can be raised")
libc = ctypes.CDLL(None)
assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0, "breach: can mount"
assert libc.setuid(0) != 0, "breach: is root"
assert libc.chroot(b"/tmp") != 0, "breach: can change the root"
assert libc.unshare(0x10000000) != 0 or os.getuid() != 0, "breach: became root"


def scale(x):
    return 0 * x


running = scale
