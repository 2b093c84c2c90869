"""Draw random numbers that depend on a seed and a position only.

With this file one can draw `uniform`, `normal` and integer (`randint`) numbers and drop
elements at random (`dropout`). The source of all is `words`: one endless sequence of
32-bit words for each seed, of which any part can be computed at once, by any number of
threads, with the same result on every device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import minitorch.operators as operators
from minitorch.dtypes import DType
from minitorch.simple_ops.lists import pack, read, tensor
from minitorch.tensor_data import Shape, TensorData

LOW_32 = 0xFFFFFFFF


def words(count: int, seed: int, offset: int) -> Iterator[int]:
    """`count` random 32-bit words: word i is number i % 4 of block offset + i // 4."""
    for i in range(count):
        if i % 4 == 0:
            block = offset + i // 4
            four = operators.philox(
                block & LOW_32, block >> 32 & LOW_32, seed & LOW_32, seed >> 32 & LOW_32
            )
        yield four[i % 4]


def uniform(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Uniform numbers in [0, 1): the upper 24 bits of a word, divided by 2**24.

    24 bits are what float32 can hold; float64 gets the same numbers.
    """
    drawn = words(math.prod(shape), seed, offset)
    return tensor([(word >> 8) / 2**24 for word in drawn], shape, dtype)


def normal(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Standard normal numbers, two from each pair of words (`operators.box_muller`)."""
    count = math.prod(shape)
    drawn = words(count + count % 2, seed, offset)
    values: list[float] = []
    for word in drawn:
        values += operators.box_muller(word, next(drawn))
    return tensor(values[:count], shape, dtype)


def randint(
    low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
) -> TensorData:
    """Integers in [low, high): low + (word * (high - low) >> 32).

    A word is a fraction of 2**32; the same fraction of the range is what is drawn.
    """
    drawn = words(math.prod(shape), seed, offset)
    return tensor([low + (word * (high - low) >> 32) for word in drawn], shape, dtype)


def dropout(x: TensorData, p: float, seed: int, offset: int) -> TensorData:
    """x / (1 - p) where the element's word >= p * 2**32, else 0; x [*] -> [*].

    1 / (1 - p) is rounded to x's dtype before it multiplies.
    """
    # BEGIN SOLUTION a6.5
    scale = pack([operators.reciprocal(1.0 - p)], x.dtype).item()
    values = read(x)
    for i, word in enumerate(words(len(values), seed, offset)):
        values[i] = values[i] * scale if word >= p * 2**32 else 0.0
    return tensor(values, x.shape, x.dtype)
    # END SOLUTION a6.5
