"""The banks of shared memory, counted.

With this file a test can say in how many turns a warp is served (`turns`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np


def turns(places: np.ndarray, width: int) -> int:
    """In how many turns a warp's accesses to shared memory are served.

    `places` are the byte addresses of the lanes' accesses of `width` bytes. Those of 8
    and 16 bytes are served for 16 and 8 lanes at a time. Each time takes as many turns
    as there are different words in the bank that has most of them.
    """
    total = 0
    for lanes in np.split(places, max(1, width // 4)):
        words = {int(p) // 4 + w for p in lanes for w in range(max(1, width // 4))}
        total += max(Counter(word % 32 for word in words).values())
    return total
