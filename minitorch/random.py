"""Random numbers: generators, and the one that all draw from who are given no other.

With this file one can begin a program's random numbers anew, go back to a place in
them, and choose whose they are. Ours (`Generator`) are counted in blocks, so that the
same seed gives the same numbers on every device, any thread of a kernel makes its own,
and a backward pass makes them a second time.

PyTorch's (`PyTorchGenerator`) are for whoever compares two programs: from the same seed
come PyTorch's first weights and batches, and then its losses as well, but for rounding:

    torch.manual_seed(1337, sequence="pytorch")  # or MINITORCH_RANDOM=pytorch
    model = nn.Linear(4, 2)                      # PyTorch's weights

That sequence cannot be cut: each word of a Mersenne twister follows from the words
before it. It is drawn in NumPy and copied to the device.

Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011; Matsumoto
and Nishimura, "Mersenne twister", 1998; Box and Muller, 1958; what PyTorch makes of the
words was read off its numbers (tests/test_mersenne.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitorch.backend import Backend
from minitorch.devices import named
from minitorch.dtypes import DType, float32, int64, promote
from minitorch.executor import advance
from minitorch.tensor_data import Shape, TensorData, numel

CHUNK = 1 << 20  # numbers made at once; a multiple of GROUP
GROUP = 16  # eight radii and eight angles


class Generator:
    """A place in a random sequence, and who draws from there on, on any device.

    The sequence is a function of (seed, block number); drawing n numbers moves the
    block number on by ceil(n / 4), and nothing else is kept.

    Args:
        seed: of the sequence; None: one that nobody knows. PyTorch's only argument, the
            name of a device, may stand here as well.
        device: what programs for PyTorch say it draws for; the sequence is the same on
            all devices, and serves them all.
        sequence: see `manual_seed`; None: that of the default generator, or of a
            subclass.
    """

    sequence = "philox"  # kernels can draw by themselves, from (seed, block number)

    def __init__(
        self, seed: int | str | None = None, device: str | None = None,
        sequence: str | None = None,
    ) -> None:  # fmt: skip
        if isinstance(seed, str):
            seed, device = None, seed
        self.device = named(device or "cpu")
        seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        if sequence is None and type(self) is Generator:
            sequence = default_generator.sequence
        self.manual_seed(seed, sequence)

    def manual_seed(self, seed: int, sequence: str | None = None) -> Generator:
        """Start the sequence of `seed` (an int; its low 64 bits count).

        Args:
            sequence: "philox", ours, which any thread can begin anywhere; or "pytorch":
                the numbers that PyTorch draws on a CPU, for whoever compares a program
                with PyTorch's (`PyTorchGenerator`). None: as before.
        """
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
            raise TypeError(f"manual_seed: got {seed!r}; expected an int")
        if sequence not in (None, "philox", "pytorch"):
            raise ValueError(
                f"manual_seed: sequence, or MINITORCH_RANDOM, is {sequence!r}; "
                f'expected "philox" or "pytorch"'
            )
        place: dict[str, Any] = {"seed": int(seed) & (2**64 - 1), "offset": 0}
        if (sequence or self.sequence) == "pytorch":
            place["twin"] = place["seed"]
        self.set_state(place)
        return self

    def initial_seed(self) -> int:
        """The seed of the sequence."""
        return self.seed

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs to come back to this place."""
        return {"seed": self.seed, "offset": self.offset}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to a place that `get_state` gave; the sequence becomes that one's."""
        if not isinstance(state, dict) or not {"seed", "offset"} <= state.keys():
            raise TypeError(
                f"set_state: got a {type(state).__name__}, {state!r:.60}; expected the "
                f"dict that get_state, or get_rng_state, returned"
            )
        self.twin = Mersenne(state["twin"]) if "twin" in state else None
        self.seed, self.offset = int(state["seed"]), int(state["offset"])
        if isinstance(self, PyTorchGenerator) != ("twin" in state):
            self.__class__ = PyTorchGenerator if "twin" in state else Generator

    def take(self, count: int) -> tuple[int, int]:
        """(seed, block number) for `count` numbers, and move on behind them."""
        return advance("Generator.take", self._take, count)

    def _take(self, count: int) -> tuple[int, int]:
        start = self.offset
        self.offset += -(-count // 4)
        return self.seed, start

    def uniform(self, on: Backend, shape: Shape, dtype: DType) -> TensorData:
        """Uniform numbers in [0, 1) on a device."""
        return on.uniform(shape, dtype, *self.take(numel(shape)))

    def normal(self, on: Backend, shape: Shape, dtype: DType) -> TensorData:
        """Normal numbers with mean 0 and variance 1 on a device."""
        return on.normal(shape, dtype, *self.take(numel(shape)))

    def randint(
        self, on: Backend, low: int, high: int, shape: Shape, dtype: DType
    ) -> TensorData:
        """Integers in [low, high) on a device."""
        return on.randint(low, high, shape, dtype, *self.take(numel(shape)))

    def permutation(self, on: Backend, n: int) -> TensorData:
        """A random order of 0, 1, ... n - 1 on a device: int64 [n]."""
        words = self.randint(on, 0, 2**31, (n,), int64)
        return on.topk(words, n, 0, False)[1]


class PyTorchGenerator(Generator):
    """Draws what PyTorch draws on a CPU, one by one, in NumPy.

    That is so for `rand`, `randn`, `randint`, `randperm`, `normal`, `uniform_`,
    `normal_` (with them the first weights of layers), `bernoulli`, `bernoulli_`,
    `dropout` (that of attention, too), `multinomial`, `random_split`, samplers and a
    `DataLoader` without seed; float32 and float64 alike, but for the last bits of
    normal numbers.

    All else is not PyTorch's: half types, but for `rand`; what is drawn into, or in the
    shape of, a transposed tensor or a slice of columns; dropout of a sum or a `relu` of
    transposed tensors, which lie in another order here (that of the tensors themselves
    is PyTorch's); and numbers of a loader's workers. On Intel's processors, and in some
    versions on others, PyTorch asks Intel's library for dropout and `bernoulli_`: then
    those differ, and what is drawn after them.
    """

    sequence = "pytorch"  # no kernel can draw; what is not PyTorch's is `Generator`'s
    twin: Mersenne

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"twin": self.twin.get_state()}

    def uniform(self, on: Backend, shape: Shape, dtype: DType) -> TensorData:
        wide = promote(dtype, float32).numpy  # half types are rounded
        return self._made(self.twin.uniform, on, shape, dtype, wide)

    def normal(self, on: Backend, shape: Shape, dtype: DType) -> TensorData:
        wide = promote(dtype, float32).numpy
        return self._made(self.twin.normal, on, shape, dtype, wide)

    def randint(
        self, on: Backend, low: int, high: int, shape: Shape, dtype: DType
    ) -> TensorData:
        return self._made(self.twin.integers, on, shape, dtype, low, high)

    def permutation(self, on: Backend, n: int) -> TensorData:
        return self._made(self.twin.permutation, on, (n,), int64)

    def whole(self) -> int:
        """A number below 2**63, as PyTorch draws seeds."""
        return int(advance("Generator.drawn", self.twin.integers, 1, 0, 2**63)[0])

    def _made(
        self, draw: Callable, on: Backend, shape: Shape, dtype: DType, *args: Any
    ) -> TensorData:
        values = advance("Generator.drawn", draw, numel(shape), *args)
        return on.from_numpy(values.astype(dtype.numpy, copy=False).reshape(shape))


class Mersenne:
    """PyTorch's sequence for a seed, whose low 32 bits count, or from a place on that
    `get_state` gave."""

    def __init__(self, start: int | list[Any]) -> None:
        self._bits = np.random.MT19937()
        self._second: float | None = None  # the half of a pair that is left
        if isinstance(start, int):
            np.random.RandomState(self._bits).seed(start & 0xFFFFFFFF)
        else:
            key, place, self._second = start
            at: Any = {"key": np.frombuffer(bytes.fromhex(key), "<u4"), "pos": place}
            self._bits.state = {"bit_generator": "MT19937", "state": at}

    def get_state(self) -> list[Any]:
        """A place, as JSON can hold it."""
        at: Any = self._bits.state["state"]
        return [at["key"].astype("<u4").tobytes().hex(), int(at["pos"]), self._second]

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


SEQUENCE = os.environ.get("MINITORCH_RANDOM") or "philox"
default_generator = Generator(0, sequence=SEQUENCE)


def manual_seed(seed: int, sequence: str | None = None) -> Generator:
    """Start the default generator anew, for all devices; see `Generator.manual_seed`.

    Until a program says which sequence, the environment variable MINITORCH_RANDOM does:
    "pytorch" or "philox".
    """
    return default_generator.manual_seed(seed, sequence)


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> dict[str, Any]:
    """Where the default generator is, for all devices. (PyTorch's is a tensor.)"""
    return default_generator.get_state()


def set_rng_state(new_state: dict[str, Any]) -> None:
    """Go to a place that `get_rng_state` gave."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """Behind the block the default generator is where it was, if `enabled`; it is that
    of all devices, whichever are named."""
    before = default_generator.get_state()
    try:
        yield
    finally:
        if enabled:
            default_generator.set_state(before)
