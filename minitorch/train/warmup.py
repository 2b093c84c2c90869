"""Compile kernels in a second process while the first one gets to work.

With this file the first training step of a new installation comes sooner. Numba
compiles one kernel at a time in a process, and a convolutional network needs some
thirty of them. `compile_ahead` starts a second process for those that are needed late:
the matrix product, and the backward pass of the convolutions. Meanwhile this one loads
the data and compiles the early ones. They meet in Numba's cache on disk, so the next
run finds all of them there and starts no second process.

Run by itself, `python -m minitorch.train.warmup` compiles them and leaves a mark.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from minitorch.data.files import cache_folder


def compile_ahead(device: str | None) -> subprocess.Popen | None:
    """Start the second process, if kernels have to be compiled and a core is free.

    Returns it, or None where it would not help. It ends by itself; what it could not
    do, the kernels' first calls do.
    """
    if device != "cpu" or (os.cpu_count() or 1) < 2 or mark().exists():
        return None
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "minitorch.train.warmup"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None  # no more processes allowed: nothing is lost but time


def mark() -> Path:
    """The file that says: this text, compiled by this Numba, lies in this cache."""
    import numba

    from fast_ops.launch import source_digest

    digest = source_digest("fast_ops")
    parts = (digest, numba.__version__, sys.version, numba.config.CACHE_DIR)
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
    return cache_folder("kernels") / name


def compile_late_kernels() -> None:
    """Run, on random numbers, the operations that a convolutional network ends with.

    The sizes are those of training, since small tensors have kernels of their own.
    """
    import minitorch
    import minitorch.nn.functional as F
    from minitorch import optim

    batch = 128

    def leaf(*shape: int) -> minitorch.Tensor:
        return minitorch.zeros(*shape, requires_grad=True)

    weight, bias = leaf(10, 800), leaf(10)
    scores = F.linear(minitorch.zeros(batch, 800), weight, bias)
    image, kernel, shift = leaf(batch, 16, 12, 12), leaf(32, 16, 3, 3), leaf(32)
    options = ((1, 1), (0, 0), (1, 1), 1)
    up = minitorch.zeros(batch, 32, 10, 10)
    up.backend.conv2d_backward_weight(up.raw, image.raw, kernel.raw.shape, *options)
    up.sum((0, 2, 3))
    F.cross_entropy(scores, minitorch.zeros(batch, dtype=minitorch.int64)).backward()
    optim.AdamW([weight, bias]).step()
    F.relu(F.max_pool2d(F.conv2d(image, kernel, shift), 2)).sum().backward()


def main() -> None:
    """Compile, then leave the mark."""
    compile_late_kernels()
    path = mark()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


if __name__ == "__main__":
    main()
