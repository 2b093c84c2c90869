"""What hypothesis draws: shapes, shapes that broadcast, dtypes, layouts, tensors.

With this file a property is stated for "any tensor": `tensors("cpu")` draws one in any
dtype and memory layout, empty and one-element ones among them, together with the NumPy
array of its elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers import LAYOUTS, make, numbers
from minitorch import Tensor, dtypes
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape

dtype_names = st.sampled_from(dtypes.COMPUTED)  # halves: test_low_precision.py
layouts = st.sampled_from(LAYOUTS)
seeds = st.integers(0, 2**16)


class Sample(NamedTuple):
    """A tensor, and the array of its elements."""

    tensor: Tensor
    array: np.ndarray


def small_shapes(min_dims: int = 0, max_dims: int = 4, max_side: int = 5) -> Any:
    """Shapes with sizes from 0 (rarely) to `max_side`."""
    side = st.one_of(
        st.integers(1, max_side), st.integers(1, max_side), st.integers(0, max_side)
    )
    return st.lists(side, min_size=min_dims, max_size=max_dims).map(tuple)


def broadcastable_shapes(count: int = 2) -> Any:
    """`count` shapes that broadcast, and the shape that they broadcast to."""
    return hnp.mutually_broadcastable_shapes(
        num_shapes=count, max_dims=4, min_side=0, max_side=4
    )


def sample(
    device: str, shape: Shape, dtype: DType, layout: str = "contiguous", seed: int = 0
) -> Sample:
    """The sample with these properties: equal arguments give equal samples."""
    array = numbers(shape, dtype, seed, layout)
    return Sample(Tensor(make(array, device, layout)), array)


@st.composite
def tensors(
    draw: Any, device: str, shapes: Any = None, dtype_strategy: Any = dtype_names
) -> Sample:
    """Any tensor on `device`."""
    shape = draw(small_shapes() if shapes is None else shapes)
    return sample(device, shape, draw(dtype_strategy), draw(layouts), seed=draw(seeds))


@st.composite
def factorings(draw: Any, size: int) -> Shape:
    """A shape of up to four dimensions with `size` elements."""
    if size == 0:
        shape = list(draw(small_shapes(0, 3)))
        shape.insert(draw(st.integers(0, len(shape))), 0)
        return tuple(shape)
    sides = []
    for _ in range(draw(st.integers(0, 3))):
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        side = draw(st.sampled_from(divisors))
        sides.append(side)
        size //= side
    sides.append(size)
    return tuple(draw(st.permutations(sides)))


@st.composite
def basic_indices(draw: Any, shape: Shape) -> tuple[Any, ...]:
    """Ints, slices with positive steps, None and one Ellipsis, valid for `shape`."""
    items: list[Any] = []
    count = draw(st.integers(0, len(shape)))
    for size in shape[:count]:
        choices = [st.slices(size).filter(lambda s: (s.step or 1) > 0)]
        if size:
            choices.append(st.integers(-size, size - 1))
        items.append(draw(st.one_of(*choices)))
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items)


@st.composite
def any_indices(draw: Any, shape: Shape) -> tuple[Any, ...]:
    """As `basic_indices`, but with integer arrays and masks among the items."""
    items: list[Any] = []
    count = draw(st.integers(1, len(shape)))
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 3), (2, 1)]))
    for size in shape[:count]:
        kind = draw(st.sampled_from(["slice", "int", "array", "array", "mask"]))
        if kind == "slice" or size == 0:
            items.append(draw(st.slices(size).filter(lambda s: (s.step or 1) > 0)))
        elif kind == "int":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "mask" and not any(isinstance(i, np.ndarray) for i in items):
            items.append(_mask(draw, size, rows))
        else:
            elements = st.integers(-size, size - 1)
            items.append(draw(hnp.arrays(np.int64, rows, elements=elements)))
    if draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items)


def _mask(draw: Any, size: int, rows: Shape) -> np.ndarray:
    """A mask whose count of True broadcasts with index arrays of shape `rows`."""
    wanted = rows[-1] if rows else 1
    mask = np.zeros(size, bool)
    where = draw(st.permutations(range(size)))[: wanted if wanted <= size else 1]
    mask[list(where)] = True
    return mask


# ------------------------------------------------------------------------ convolutions

Pair = tuple[int, int]


class Case(NamedTuple):
    """A convolution: the image's shape, channels to make, and what `conv2d` takes."""

    x: tuple[int, int, int, int]
    made: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


def convolutions(
    images: Pair, groups: Pair, channels: st.SearchStrategy[int], made: Pair,
    size: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1),
) -> st.SearchStrategy[Case]:  # fmt: skip
    """Cases with kernels of up to 3 x 3; `channels` and `made` are of a group. Pairs
    are the least and the most."""

    def case(
        n: int, groups: int, channels: int, made: int, size: Pair, *how: Pair
    ) -> Case:
        return Case((n, groups * channels, *size), groups * made, *how, groups)

    pairs = [
        st.tuples(*[st.integers(*ends)] * 2)
        for ends in (size, (1, 3), stride, padding, dilation)
    ]
    counts = st.integers(*images), st.integers(*groups), channels, st.integers(*made)
    return st.builds(case, *counts, *pairs)
