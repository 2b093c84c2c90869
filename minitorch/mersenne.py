"""The random numbers that PyTorch draws on a CPU, so that two programs can be compared.

With this file a program gets PyTorch's first weights and batches from the same seed,
and then its losses as well, but for rounding:

    torch.manual_seed(1337, sequence="pytorch")  # or MINITORCH_RANDOM=pytorch
    model = nn.Linear(4, 2)                      # PyTorch's weights

Our own sequence (`creation.Generator`) counts blocks, so that any thread can make any
number. This one cannot be cut: each word of a Mersenne twister follows from the words
before it. It is drawn in NumPy and copied to the device.

Sources: Matsumoto and Nishimura, "Mersenne twister", 1998; Box and Muller, 1958; what
PyTorch makes of the words was read off its numbers (tests/test_mersenne.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

CHUNK = 1 << 20  # numbers made at once; a multiple of GROUP
GROUP = 16  # eight radii and eight angles


class Mersenne:
    """PyTorch's sequence for a seed, whose low 32 bits count."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.MT19937()
        _, key, place, *_ = np.random.RandomState(seed & 0xFFFFFFFF).get_state()
        self._go(np.asarray(key), int(place))
        self._second: float | None = None  # the half of a pair that is left

    def _go(self, key: Any, place: int) -> None:
        state: Any = {"key": key, "pos": place}
        self._bits.state = {"bit_generator": "MT19937", "state": state}

    def get_state(self) -> list[Any]:
        """What `set_state` needs, as JSON can hold it."""
        at: Any = self._bits.state["state"]
        return [at["key"].astype("<u4").tobytes().hex(), int(at["pos"]), self._second]

    def set_state(self, state: list[Any]) -> None:
        """Go to a place that `get_state` gave."""
        key, place, self._second = state
        self._go(np.frombuffer(bytes.fromhex(key), "<u4"), place)

    def _words(self, n: int) -> Any:
        """uint64 [n], each below 2**32."""
        return self._bits.random_raw(n)

    def _pairs(self, n: int) -> Any:
        """uint64 [n], each of two words."""
        high, low = self._words(2 * n).reshape(n, 2).T
        return high << np.uint64(32) | low

    def uniform(self, n: int, dtype: Any) -> Any:
        """[n] in [0, 1): 24 bits of a word, or as float64 53 bits of two."""
        out = np.empty(n, dtype)
        double = out.dtype == np.float64
        bits, draw = (53, self._pairs) if double else (24, self._words)
        for start in range(0, n, CHUNK):
            part = out[start : start + CHUNK]
            part[:] = draw(len(part)) & np.uint64(2**bits - 1)
            part *= 2.0**-bits
        return out

    def normal(self, n: int, dtype: Any) -> Any:
        """[n] with mean 0 and variance 1.

        Sixteen uniform numbers become sixteen normal ones; the last sixteen are drawn
        anew where n is no multiple of that. Fewer than sixteen are made in pairs of
        float64, and the second of the last pair waits for the next call.
        """
        if n < GROUP:
            return np.array([self._one() for _ in range(n)], dtype)
        out = self.uniform(n, dtype)
        for start in range(0, n - GROUP + 1, CHUNK):
            _box_muller(out[start : min(start + CHUNK, n // GROUP * GROUP)])
        if n % GROUP:
            out[-GROUP:] = self.uniform(GROUP, dtype)
            _box_muller(out[-GROUP:])
        return out

    def _one(self) -> float:
        if self._second is not None:
            number, self._second = self._second, None
            return number
        turn, size = self.uniform(2, np.float64).tolist()
        radius, angle = math.sqrt(-2 * math.log1p(-size)), 2 * math.pi * turn
        self._second = radius * math.sin(angle)
        return radius * math.cos(angle)

    def integers(self, n: int, low: int, high: int) -> Any:
        """int64 [n] in [low, high): remainders, of pairs of words from 2**28 on."""
        span = high - low
        words = self._pairs(n) if span >= 2**28 else self._words(n)
        return (words % np.uint64(span)).astype(np.int64) + low

    def permutation(self, n: int) -> Any:
        """int64 [n]: Fisher and Yates' shuffle, from the front."""
        order = list(range(n))
        places = self._words(max(n - 1, 0)) % np.arange(n, 1, -1, dtype=np.uint64)
        for i, far in enumerate(places.tolist()):
            order[i], order[i + far] = order[i + far], order[i]
        return np.array(order, np.int64)


def _box_muller(x: Any) -> None:
    """Normal numbers of uniform ones, in place: x is [16 k]."""
    first, second = x.reshape(-1, 2, GROUP // 2).transpose(1, 0, 2)
    radius = np.sqrt(-2 * np.log(1 - first))
    angle = x.dtype.type(2 * math.pi) * second
    first[:], second[:] = radius * np.cos(angle), radius * np.sin(angle)
