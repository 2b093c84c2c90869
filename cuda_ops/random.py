"""Random numbers: counted, not stepped, so that all threads draw one sequence.

With this file one can fill tensors with uniform, normal or whole random numbers
(`uniform`, `normal`, `randint`), drop elements at random (`dropout`), and make a CUDA
graph draw new numbers at each replay (`counted_from`, `advance`).

Block number b of a stream is a function of b and the seed alone (`operators.philox`):
four 32-bit words, for elements 4b to 4b + 3. Thread b computes block b, keeps the words
in registers and stores its four elements with one 16-byte store. The numbers are those
of every other device:

- `uniform`, `randint` and `dropout` use whole-number arithmetic and one product that is
  exact or rounded as IEEE 754 says: equal to the last bit.
- `normal` computes log, sqrt, cos and sin in float64, as `operators.box_muller` says,
  and rounds at the end. The libraries' log, cos and sin differ by some units in the
  last place of a float64, so float64 results agree to about 1e-15, and float32 results
  are equal but where the exact number lies that close to the middle between two
  float32 numbers, about one of 10^7.

Random numbers in a CUDA graph
------------------------------
A captured launch keeps its arguments, so it would draw the same block numbers at each
replay. Every kernel here therefore counts from a number in device memory:

    block of thread b = base[0] + offset + b          base: an int64 array [1]

which is 0, in an array that nobody changes, unless `counted_from` names another:

    base = memory.from_numpy(np.zeros(1, np.int64)).flat()     # before the capture
    with counted_from(base):              # while the graph is captured
        ... the step ...
        advance(base, blocks)             # the last node: base[0] += blocks

`blocks` is how far the step moved the generator's offset; forward and backward passes
of one replay see one base, so a dropout mask is the same in both. After a replay the
host adds `blocks` to its generator, to go on where the graph stopped. Kernels of other
files that draw words take `block_base()` as their argument in the same way.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba import cuda, float32

from cuda_ops.block.intrinsics import (
    device,
    is_aligned,
    load,
    load4,
    same_type,
    store,
    store4,
)
from cuda_ops.memory import contiguous, empty, full
from cuda_ops.runtime import device as gpu
from cuda_ops.runtime.launch import SIMULATED, TINY, ceil_div, kernel
from minitorch import dtypes, operators
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape, TensorData

THREADS = 32 if TINY else 256
LOW_32 = 0xFFFFFFFF
UNIT = np.float32(2.0**-24)

philox = device(operators.philox)
# As a float64.
TWO_PI = 2.0 * math.pi
# What is missing to 2 pi.
TWO_PI_REST = 2.4492935982947064e-16


def _box_muller(word0, word1):
    """`operators.box_muller` to the last bits of a float64, without a table.

    A float64 cosine of any angle needs a table of 2 / pi with 1,200 bits, which would
    be in every kernel that calls it. The angle here is 2 pi u with a u below 1 that is
    exact; so the cosine and sine of exactly 2 pi u are taken (`sincospi`) and turned by
    the small angle `rest` by which the rounded angle differs from it:

        cos(x + rest) = cos(x) - rest sin(x),   sin(x + rest) = sin(x) + rest cos(x)
    """
    radius = math.sqrt(-2.0 * math.log((word0 + 1) * 2.0**-32))
    u = word1 * 2.0**-32
    angle = TWO_PI * u
    rest = -cuda.fma(TWO_PI, u, -angle) - TWO_PI_REST * u
    y, x = cuda.libdevice.sincospi(2.0 * u)
    return radius * (x - rest * y), radius * (y + rest * x)


box_muller = operators.box_muller if SIMULATED else device(_box_muller)


@device
def draw(key0, key1, offset, base, b):
    """The four words of block base[0] + offset + b."""
    block = base[0] + offset + b
    return philox(block & LOW_32, (block >> 32) & LOW_32, key0, key1)


@device
def load_block(x, i, aligned):
    """x[i : i + 4], with zeros for what is beyond its end; 16 bytes at once."""
    if aligned and i + 4 <= x.size:
        return load4(x, i)
    x0 = load(x, i)
    zero = same_type(0, x0)
    x1 = load(x, i + 1) if i + 1 < x.size else zero
    x2 = load(x, i + 2) if i + 2 < x.size else zero
    x3 = load(x, i + 3) if i + 3 < x.size else zero
    return x0, x1, x2, x3


@device
def store_block(out, i, x0, x1, x2, x3):
    """out[i : i + 4] = x0, x1, x2, x3, as far as out goes; 16 bytes at once."""
    if i + 4 <= out.size:
        store4(out, i, x0, x1, x2, x3)
    else:
        store(out, i, x0)
        if i + 1 < out.size:
            store(out, i + 1, x1)
        if i + 2 < out.size:
            store(out, i + 2, x2)


# ----------------------------------------------------------------------- kernels

FLOATS = "float32", "float64"
HEAD = "int64 int64 int64 int64[]"


@device
def affine(x, scale, shift):
    """x * scale + shift, in the type of `scale`, rounded twice, as on all devices:
    what is fused with a -0 already, no compiler fuses with an addition."""
    return cuda.fma(same_type(x, scale), scale, same_type(-0.0, scale)) + shift


@kernel(examples=[f"{HEAD} {t} {t} {t}[]" for t in FLOATS])
def uniform_blocks(key0, key1, offset, base, scale, shift, out):
    """out[4 b + j] = top 24 bits of word j of block b, / 2^24, * scale + shift.

    # out [n]

        for b in range(ceil(n / 4)):   out[4 b : 4 b + 4] = (words of b >> 8) / 2^24

    Thread b makes four elements. Ten rounds of Philox are 20 wide products and 40
    exclusive ors on registers, for 16 bytes that leave the chip: at 1 TB/s of float32
    a product costs as much as a byte, so both units are about equally busy.
    """
    b = cuda.grid(1)
    i = 4 * b
    if i < out.size:
        w0, w1, w2, w3 = draw(key0, key1, offset, base, b)
        x0, x1 = float32(w0 >> 8) * UNIT, float32(w1 >> 8) * UNIT
        x2, x3 = float32(w2 >> 8) * UNIT, float32(w3 >> 8) * UNIT
        store_block(
            out, i, affine(x0, scale, shift), affine(x1, scale, shift),
            affine(x2, scale, shift), affine(x3, scale, shift),
        )  # fmt: skip


@kernel(examples=[f"{HEAD} {t} {t} {t}[]" for t in FLOATS], float64=True)
def normal_blocks(key0, key1, offset, base, scale, shift, out):
    """Two words make two normal numbers, by the method of Box and Muller.

    # out [n]

    Thread b makes elements 4b to 4b + 3. float64 logarithms and cosines are what takes
    the time: about 250 float64 instructions for four numbers, half as fast as float32
    ones on a data-centre chip and 1/32 to 1/64 as fast on others.
    """
    b = cuda.grid(1)
    i = 4 * b
    if i < out.size:
        w0, w1, w2, w3 = draw(key0, key1, offset, base, b)
        x0, x1 = box_muller(w0, w1)
        x2, x3 = box_muller(w2, w3)
        store_block(
            out, i, affine(x0, scale, shift), affine(x1, scale, shift),
            affine(x2, scale, shift), affine(x3, scale, shift),
        )  # fmt: skip


@kernel(examples=[f"{HEAD} int64 int64 {t}[]" for t in ("int64", "int32", "float32")])
def randint_blocks(key0, key1, offset, base, low, span, out):
    """out[i] = low + word * span / 2^32, rounded down; threads as in `uniform_blocks`.

    # out [n]
    """
    b = cuda.grid(1)
    i = 4 * b
    if i < out.size:
        w0, w1, w2, w3 = draw(key0, key1, offset, base, b)
        x0, x1 = low + ((w0 * span) >> 32), low + ((w1 * span) >> 32)
        x2, x3 = low + ((w2 * span) >> 32), low + ((w3 * span) >> 32)
        store_block(out, i, x0, x1, x2, x3)


@kernel(
    examples=[
        f"{HEAD} {a}[] int64 {t} bool {a}[]"
        for a, t in (
            ("float32", "float32"),
            ("float64", "float64"),
            ("bfloat16", "float32"),
        )
    ]
)
def dropout_blocks(key0, key1, offset, base, x, limit, scale, aligned, out):
    """out[i] = x[i] * scale where word i >= limit, else 0.

    # x [n] -> out [n]

    Threads as in `uniform_blocks`; four elements come in with one 16-byte load, if x
    lies at an address for it. The mask never exists in memory: it is drawn, used and
    forgotten, and drawn again for the gradient.
    """
    b = cuda.grid(1)
    i = 4 * b
    if i < x.size:
        w0, w1, w2, w3 = draw(key0, key1, offset, base, b)
        zero = same_type(0, scale)
        x0, x1, x2, x3 = load_block(x, i, aligned)
        x0 = x0 * scale if w0 >= limit else zero
        x1 = x1 * scale if w1 >= limit else zero
        x2 = x2 * scale if w2 >= limit else zero
        x3 = x3 * scale if w3 >= limit else zero
        store_block(out, i, x0, x1, x2, x3)


@kernel(examples=["int64[] int64"])
def advance_base(base, blocks):
    """base[0] += blocks, by one thread."""
    if cuda.grid(1) == 0:
        base[0] += blocks


# ------------------------------------------------------------- where counting starts


class Counting:
    """Which device array the kernels count from.

    Attributes:
        base: the array in use; None is the GPU's `zero`.
    """

    def __init__(self) -> None:
        self.base: Any = None


counting = Counting()


def block_base() -> Any:
    """The int64 array [1] whose number kernels add to their offset (see above)."""
    if counting.base is not None:
        return counting.base
    return gpu.current.gpu.zero


def _zero(_: gpu.Gpu) -> Any:
    return full((1,), 0, dtypes.int64).flat()


gpu.Gpu.parts["zero"] = _zero


@contextmanager
def counted_from(base: Any) -> Iterator[None]:
    """Let the launches inside count from the int64 device array `base` [1]."""
    before, counting.base = counting.base, base
    try:
        yield
    finally:
        counting.base = before


def advance(base: Any, blocks: int) -> None:
    """base[0] += blocks on the device, after the launches before it."""
    advance_base[1, 1](base, blocks)


# --------------------------------------------------------------------- launchers


def _start(kernel: Any, size: int, seed: int, offset: int, *args: Any) -> None:
    kernel[ceil_div(size, 4 * THREADS), THREADS](
        seed & LOW_32, (seed >> 32) & LOW_32, offset, block_base(), *args
    )


def uniform(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Uniform numbers in [0, 1), as the kernel says."""
    out = empty(shape, dtype)
    random_(out, False, seed, offset, 1.0, -0.0)
    return out


def normal(shape: Shape, dtype: DType, seed: int, offset: int) -> TensorData:
    """Standard normal numbers, as the kernel says."""
    out = empty(shape, dtype)
    random_(out, True, seed, offset, 1.0, -0.0)
    return out


def random_(
    out: TensorData, normal: bool, seed: int, offset: int, scale: float, shift: float
) -> None:
    """out = normal or uniform numbers * scale + shift, for `out` without gaps."""
    kind, z = out.dtype.numpy.type, out.flat()
    kernel = normal_blocks if normal else uniform_blocks
    _start(kernel, len(z), seed, offset, kind(scale), kind(shift), z)


def randint(
    low: int, high: int, shape: Shape, dtype: DType, seed: int, offset: int
) -> TensorData:
    """Integers in [low, high): low + (word * (high - low) >> 32)."""
    out = empty(shape, dtype)
    _start(randint_blocks, out.size, seed, offset, low, high - low, out.flat())
    return out


def dropout(x: TensorData, p: float, seed: int, offset: int) -> TensorData:
    """x / (1 - p) where word i >= p * 2**32 (words as in uniform), else 0."""
    out = empty(x.shape, x.dtype)
    kind = dtypes.computed(x.dtype).numpy.type
    scale = kind(1.0 / (1.0 - p) if p < 1 else 0.0)
    flat = contiguous(x).flat()
    limit = math.ceil(p * 2.0**32)  # word >= limit for whole words: the same as >= p
    _start(
        dropout_blocks, out.size, seed, offset, flat, limit, scale, is_aligned(flat),
        out.flat(),
    )  # fmt: skip
    return out
