"""Convolution with 3 x 3 taps by fewer multiplications: Winograd's algorithm.

With this file `conv.py` convolves large numbers of channels with kernels of 3 x 3 taps,
strides and dilations of 1 (`plan_winograd`, `run_winograd`). Four outputs of 3 x 3 taps
take 36 multiplications; F(2 x 2, 3 x 3) takes 16, for each pair of channels, after
transforms of the images and of the taps that need none:

    for each patch d [4, 4] of the image, which overlap by 2, and taps g [3, 3]:
        outputs [2, 2] = A^T [ (G g G^T) * (B^T d B) ] A          * element by element

          | 1  0 -1  0 |       | 1    0    0  |
    B^T = | 0  1  1  0 |   G = | 1/2  1/2 1/2 |     A^T = | 1  1  1  0 |
          | 0 -1  1  0 |       | 1/2 -1/2 1/2 |           | 0  1 -1 -1 |
          | 0  1  0 -1 |       | 0    0    1  |

The sum over channels may be taken before the last transform. So for each of the 16
places in a patch there is one matrix product, [outs, channels] @ [channels, patches],
and `matmul_vectorized` makes all 16 in one launch:

    taps    [O, C, 3, 3] -> [16, C, O]      `winograd_taps`
    images  [N, C, H, W] -> [16, C, P]      `winograd_input`, P patches
    product               [16, O, P]        `matmul.launch`
    outputs [N, O, OH, OW]                  `winograd_output`

What the transforms cost is memory: they move 4 times the image and 4 times the output,
where tiles (`tiles.py`) move nothing. So it pays only for many channels
(`plan_winograd` compares estimates).

Outputs are differences of larger sums, so rounding errors grow; in float32 they stayed
below 1e-6 of the largest output. An infinite or NaN pixel can make NaN of any output of
its patches, where the definition would leave some of them infinite or finite.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import cuda, float32, int32, int64

from cuda_ops.block.intrinsics import device, load, store, store2
from cuda_ops.conv.plan import magic
from cuda_ops.conv.tiles import OUTSIDE, divide, inside
from cuda_ops.matmul import matmul
from cuda_ops.matmul.kernels import CONFIGS_4, Config
from cuda_ops.memory import contiguous, empty
from cuda_ops.runtime.device import compute_capability, properties
from cuda_ops.runtime.launch import SIMULATED, TINY, ceil_div, kernel
from minitorch.dtypes import DType
from minitorch.dtypes import float32 as float32_type
from minitorch.tensor_data import Shape, TensorData

Pair = tuple[int, int]

# In a patch.
PLACES = 16
THREADS = 8 if TINY else 256
# Channels side by side in a block of `winograd_taps`.
LANES = 4 if TINY else 32

# ------------------------------------------------------------------------- transforms


@device
def patch_sums(a, b, c, d):
    """B^T of one column of a patch."""
    return a - c, b + c, c - b, b - d


@device
def tap_sums(a, b, c):
    """G of one column of the taps."""
    half = float32(0.5)
    middle = half * (a + c)
    return a, middle + half * b, middle - half * b, c


@device
def output_sums(a, b, c, d):
    """A^T of one column of products."""
    return a + b + c, b - c - d


@device
def store_four(out, at, step, four):
    """Store four numbers, `step` elements apart."""
    store(out, at, four[0])
    store(out, at + step, four[1])
    store(out, at + 2 * step, four[2])
    store(out, at + 3 * step, four[3])


@device
def patch_row(source, at, y, x, high, wide):
    """B^T of four neighbours in row y, from column x on; zeros outside of the image."""
    there, zero = inside(int32(y), high), float32(0)
    a = load(source, at) if there & inside(int32(x), wide) else zero
    b = load(source, at + 1) if there & inside(int32(x + 1), wide) else zero
    c = load(source, at + 2) if there & inside(int32(x + 2), wide) else zero
    d = load(source, at + 3) if there & inside(int32(x + 3), wide) else zero
    return patch_sums(a, b, c, d)


@device
def tap_column(weight, at, step):
    """G of a column of taps, of which one follows the other after 3 `step`."""
    return tap_sums(
        load(weight, at), load(weight, at + 3 * step), load(weight, at + 6 * step)
    )


@device
def output_column(product, at, step):
    """A^T of a column of a patch, whose places are `step` elements apart."""
    return output_sums(
        load(product, at), load(product, at + step), load(product, at + 2 * step),
        load(product, at + 3 * step),
    )  # fmt: skip


@device
def patch_of(p, patches):
    """Patch p as (image, row of patches, column of patches)."""
    image = divide(p, patches[4], patches[5])
    rest = p - image * patches[1]
    row = divide(rest, patches[6], patches[7])
    return image, row, rest - row * patches[0]


@kernel(
    examples=["float32[] float32[] 6*int64"], threads=THREADS, launch_bounds=THREADS
)
def winograd_taps(weight, out, layout):
    """Transform the taps of each pair of channels.

    # weight of C * O * 9 elements -> out [16, C, O]
    # layout: O, C, the weight's steps of O and C, first tap, step to the next tap

        for c, o:  out[:, c, o] = G g G^T with
            g[i, j] = weight[place of o and c + first + (3 i + j) * step]

    The gradient for the input takes the taps backwards (a step of -1). Lanes are
    neighbouring o: what they write lies side by side, so that the product can read it
    16 bytes at a time, across k. Their reads are 9 C elements apart, but the 8 channels
    of a block use up the sectors of 32 bytes that they fetch, and nearly two thirds of
    the traffic are writes.
    """
    O, C, out_stride, in_stride, first, step = layout
    o = int64(cuda.blockIdx.x) * LANES + cuda.threadIdx.x % LANES
    c = int64(cuda.blockIdx.y) * (THREADS // LANES) + cuda.threadIdx.x // LANES
    if o < O and c < C:
        at = o * out_stride + c * in_stride + first
        t0 = tap_column(weight, at, step)
        t1 = tap_column(weight, at + step, step)
        t2 = tap_column(weight, at + 2 * step, step)
        # Row i of G g G^T goes to the places 4 i to 4 i + 3, which are C * O apart.
        to, place = c * O + o, C * O
        store_four(out, to, place, tap_sums(t0[0], t1[0], t2[0]))
        store_four(out, to + 4 * place, place, tap_sums(t0[1], t1[1], t2[1]))
        store_four(out, to + 8 * place, place, tap_sums(t0[2], t1[2], t2[2]))
        store_four(out, to + 12 * place, place, tap_sums(t0[3], t1[3], t2[3]))


@kernel(
    examples=["float32[] float32[] 3*int64 8*int64 2*int64"], threads=THREADS,
    launch_bounds=THREADS,
)  # fmt: skip
def winograd_input(source, out, image, patches, base):
    """Transform the patches of an image: 4 x 4 pixels, 2 apart.

    # source [N, C, H, W] -> out [16, C, pitch]
    # image: C, H, W; patches: in a row, of an image, of all, pitch, then magic of an
    # image and of a row
    # base: row and column of the first patch

        for n, y, x of patch p, for c:
            out[:, c, p] = B^T source[n, c, 2 y + base: + 4, 2 x + base: + 4] B

    A thread makes a patch: 16 loads, which the first-level cache serves as each pixel
    is a part of 4 patches, 32 additions in registers, and 16 stores, each of them 128
    neighbouring bytes for a warp. The grid's y is the channel. Patches behind the last
    fill up the pitch with zeros.

    Memory bound: for each pixel 4 bytes are read and 16 written.
    """
    C, H, W = image
    p, c = cuda.grid(1), int64(cuda.blockIdx.y)
    pitch = patches[3]
    if p < pitch:
        n, row, col = patch_of(p, patches)
        y, x = 2 * row + base[0], 2 * col + base[1]
        at = ((n * C + c) * H + y) * W + x
        if p >= patches[2]:  # Behind the last patch: all pixels are outside.
            y = int64(OUTSIDE)
        r0 = patch_row(source, at, y, x, H, W)
        r1 = patch_row(source, at + W, y + 1, x, H, W)
        r2 = patch_row(source, at + 2 * W, y + 2, x, H, W)
        r3 = patch_row(source, at + 3 * W, y + 3, x, H, W)
        # Column j of the result goes to the places j, j + 4, j + 8, j + 12.
        to, place = c * pitch + p, C * pitch
        step = 4 * place
        store_four(out, to, step, patch_sums(r0[0], r1[0], r2[0], r3[0]))
        to += place
        store_four(out, to, step, patch_sums(r0[1], r1[1], r2[1], r3[1]))
        to += place
        store_four(out, to, step, patch_sums(r0[2], r1[2], r2[2], r3[2]))
        to += place
        store_four(out, to, step, patch_sums(r0[3], r1[3], r2[3], r3[3]))


@kernel(
    examples=["float32[] float32[] float32[] 3*int64 8*int64 bool"], threads=THREADS,
    launch_bounds=THREADS,
)  # fmt: skip
def winograd_output(product, bias, out, image, patches, has_bias):
    """Transform the products of a patch to 2 x 2 outputs.

    # product [16, O, pitch], bias [O] -> out [N, O, OH, OW]
    # image: O, OH, OW; patches: as in `winograd_input`

        for n, y, x of patch p, for o:
            out[n, o, 2 y: + 2, 2 x: + 2] = bias[o] + A^T product[:, o, p] A

    A thread makes a patch of one channel, the grid's y: 16 loads, each of them 128
    neighbouring bytes for a warp, 24 additions, and two stores of 8 bytes, if rows have
    an even length. Memory bound, as `winograd_input`.
    """
    O, OH, OW = image
    p, o = cuda.grid(1), int64(cuda.blockIdx.y)
    if p < patches[2]:
        pitch = patches[3]
        n, row, col = patch_of(p, patches)
        # Column j of the patch lies at the places j, j + 4, j + 8, j + 12.
        at, place = o * pitch + p, O * pitch
        m0 = output_column(product, at, 4 * place)
        m1 = output_column(product, at + place, 4 * place)
        m2 = output_column(product, at + 2 * place, 4 * place)
        m3 = output_column(product, at + 3 * place, 4 * place)
        added = bias[o] if has_bias else float32(0)
        upper = output_sums(m0[0], m1[0], m2[0], m3[0])
        lower = output_sums(m0[1], m1[1], m2[1], m3[1])
        y, x = 2 * row, 2 * col
        to = ((n * O + o) * OH + y) * OW + x
        if OW % 2 == 0:
            store2(out, to, upper[0] + added, upper[1] + added)
            if y + 1 < OH:
                store2(out, to + OW, lower[0] + added, lower[1] + added)
        else:
            store(out, to, upper[0] + added)
            if x + 1 < OW:
                store(out, to + 1, upper[1] + added)
            if y + 1 < OH:
                store(out, to + OW, lower[0] + added)
                if x + 1 < OW:
                    store(out, to + OW + 1, lower[1] + added)


# ------------------------------------------------------------------ choosing, launching

# How the 16 products may be cut, from compute capability 8.0 on.
CONFIGS: tuple[Config, ...] = CONFIGS_4
if not SIMULATED:
    CONFIGS = (*CONFIGS_4[:2], Config(2, 2, 1, 8, 8, 8, 16, 4, blocks=3))  # 128 x 64
# Numbers in the transformed image and product together.
MOST = 1 << 28
# Below, the transforms alone take longer than tiles.
LEAST_CHANNELS = 32
# Fitted to times on an H200: cycles of each of the four kernels at least, and bytes a
# cycle and multiprocessor in the transforms.
LAUNCH_CYCLES = 5000.0
MOVED = 16.0


class Taps(NamedTuple):
    """Where a weight's taps lie: steps of output and of summed channels, the first one,
    and from one tap to the next."""

    outs: int
    channel: int
    first: int
    step: int


class WinogradPlan(NamedTuple):
    """A convolution of 3 x 3 taps, ready to be launched for any tensors of its shapes.

    Attributes:
        out_shape: [N, O, OH, OW].
        taps: what `winograd_taps` takes.
        image: C, H, W of the source.
        patches: what `patch_of` takes.
        base: row and column of the first patch.
        product: of matmul, for all 16 places.
        cycles: an estimate of the time.
    """

    out_shape: Shape
    taps: tuple[int, ...]
    image: tuple[int, ...]
    patches: tuple[int, ...]
    base: Pair
    product: matmul.Plan
    cycles: float


def plan_winograd(
    source: Shape, out_shape: Shape, taps: Taps, base: Pair
) -> WinogradPlan:
    """Prepare a convolution, and choose how to cut its products."""
    N, C, H, W = source
    _, O, OH, OW = out_shape
    across, down = ceil_div(OW, 2), ceil_div(OH, 2)
    total = N * down * across
    pitch = ceil_div(total, 4) * 4
    size = (O, pitch, C, PLACES)
    configs = CONFIGS if compute_capability() >= (8, 0) else CONFIGS_4[1:2]
    cut = matmul.choose(configs, *size, matmul.FMA_RATE)
    sides = matmul.Sides(O, pitch, C, (1, O), (1, pitch), ((PLACES, C * O, C * pitch),))
    shape = (PLACES, O, pitch)
    product = matmul.plan_for(shape, sides, cut, (True, True), float32_type)
    moved = 4 * (N * C * H * W + N * O * OH * OW + PLACES * (C + O) * (pitch + C))
    cycles = matmul.estimate(cut, *size, matmul.FMA_RATE) + 4 * LAUNCH_CYCLES
    cycles += moved / (MOVED * properties().multi_processor_count)
    patches = (across, down * across, total, pitch)
    magics = (*magic(max(1, down * across)), *magic(max(1, across)))
    return WinogradPlan(
        out_shape, (O, C, *taps), source[1:], (*patches, *magics), base, product, cycles
    )


def fits(
    dtype: DType, source: Shape, out_shape: Shape, taps: Shape, stride: Pair,
    dilation: Pair, groups: int,
) -> bool:  # fmt: skip
    """Whether the algorithm can be used, and has channels enough to think of it."""
    N, C = source[:2]
    O, OH, OW = out_shape[1:]
    patches = N * ceil_div(OH, 2) * ceil_div(OW, 2)
    return (
        dtype is float32_type
        and taps == (3, 3)
        and stride == dilation == (1, 1)
        and groups == 1
        and min(C, O) >= LEAST_CHANNELS
        and C % 8 == O % 8 == 0
        and max(C, O) < 1 << 16
        and 0 < PLACES * (C + O) * patches <= MOST
    )


def run_winograd(
    plan: WinogradPlan, source: TensorData, weight: TensorData, bias: TensorData | None
) -> TensorData:
    """Launch a prepared convolution."""
    O, C = plan.taps[:2]
    pitch = plan.patches[3]
    taps = empty((PLACES, C, O), source.dtype)
    grid = (ceil_div(O, LANES), ceil_div(C, THREADS // LANES))
    winograd_taps[grid, THREADS](contiguous(weight).flat(), taps.flat(), plan.taps)
    image = empty((PLACES, C, pitch), source.dtype)
    winograd_input[(ceil_div(pitch, THREADS), C), THREADS](
        contiguous(source).flat(), image.flat(), plan.image, plan.patches, plan.base
    )
    product = matmul.launch(plan.product, taps, image)
    out = empty(plan.out_shape, source.dtype)
    added = taps if bias is None else contiguous(bias)
    winograd_output[(ceil_div(plan.patches[2], THREADS), O), THREADS](
        product.flat(), added.flat(), out.flat(), out.shape[1:], plan.patches,
        bias is not None,
    )  # fmt: skip
    return out


def forward_plan(x: Shape, weight: Shape, padding: Pair) -> WinogradPlan:
    """conv2d of x [N, C, H, W] with weight [O, C, 3, 3]."""
    N, C, H, W = x
    out_shape = (N, weight[0], H + 2 * padding[0] - 2, W + 2 * padding[1] - 2)
    taps = Taps(9 * C, 9, 0, 1)
    return plan_winograd(x, out_shape, taps, (-padding[0], -padding[1]))


def input_plan(grad: Shape, weight: Shape, x: Shape, padding: Pair) -> WinogradPlan:
    """The gradient for the input: channels change places, and the taps turn around."""
    taps = Taps(9, 9 * weight[1], 8, -1)
    return plan_winograd(grad, x, taps, (padding[0] - 2, padding[1] - 2))
