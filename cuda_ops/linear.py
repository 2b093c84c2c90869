"""Bias and activation: what follows the matrix product of a layer, in one pass.

With this file one can add a bias to every row of a matrix and apply a function of one
number to the sums (`bias_activation`), and carry a gradient back through that function
(`bias_activation_backward`). Written as two operations, the sums would be stored and
loaded once more: 16 bytes an element in place of 8. Here they only exist in registers.

A product that a warpgroup makes begins with the bias (`linear`). For a few rows
(`linear_of_few`) the product itself is as short as a launch, and all that stands around
it is done while the weight is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int64, uint32

from cuda_ops.block.intrinsics import (
    WARP,
    device,
    is_aligned,
    load,
    load4,
    prefetch,
    store,
    store4,
    wait_for_previous,
)
from cuda_ops.block.rows import (
    BLOCK,
    LARGE,
    Fit,
    barrier,
    row_reader,
    row_writer,
    summed,
    width_of,
)
from cuda_ops.block.tiles import quotient
from cuda_ops.elementwise import ROW, repeat_mode, same_window, zip_repeated
from cuda_ops.index_errors import after_launch, bad_index, notes
from cuda_ops.matmul.matmul import matmul_bias
from cuda_ops.memory import STEP, THREADS, contiguous, copy_into, empty, overlap
from cuda_ops.norm import layer_norm, row_normalized
from cuda_ops.runtime.launch import Kernel, Kernels, ceil_div, device_function
from minitorch import operators
from minitorch.backend.linear import Kept, NormOf
from minitorch.dtypes import computed, float32, int8
from minitorch.tensor_data import TensorData


def bias_rows(fn: Callable) -> Callable:
    """Make the kernel out[r, j] = fn(x[r, j] + bias[j]).

    # x [R, N], bias [N] -> out [R, N]

    `zip_repeated` with a row: thread t makes four neighbours, with one load of 16 bytes
    from x and one from the bias, which stays in the cache.
    """

    @device
    def after_bias(x, b):
        # BEGIN SOLUTION a8.1
        return fn(x + b)
        # END SOLUTION a8.1

    return zip_repeated(after_bias)


def bias_rows_backward(fn: Callable) -> Callable:
    """Make the kernel out[r, j] = fn(grad[r, j], x[r, j] + bias[j]); as `bias_rows`.

    # grad [R, N], x [R, N], bias [N] -> out [R, N]
    """

    def loop(grad, x, bias, out, mode):
        # BEGIN SOLUTION a8.1
        i = int64(cuda.grid(1)) * 4
        n = uint32(bias.size)
        if mode == ROW and i + 4 <= out.size:
            g0, g1, g2, g3 = load4(grad, i)
            x0, x1, x2, x3 = load4(x, i)
            b0, b1, b2, b3 = load4(bias, int64(uint32(i) % n))
            store4(
                out, i, fn(g0, x0 + b0), fn(g1, x1 + b1), fn(g2, x2 + b2),
                fn(g3, x3 + b3),
            )  # fmt: skip
        else:
            for j in range(i, min(i + 4, out.size)):
                b = load(bias, int64(uint32(j) % n))
                store(out, j, fn(load(grad, j), load(x, j) + b))
        # END SOLUTION a8.1

    return loop


ROWS = Kernels(
    bias_rows,
    (operators.gelu, operators.relu),
    ["float32[] float32[] float32[] int64 int64"],
)
BACKWARD = Kernels(
    bias_rows_backward,
    (operators.gelu_backward,),
    ["float32[] float32[] float32[] float32[] int64"],
)


def bias_activation(
    x: TensorData,
    bias: TensorData,
    fn: Callable | None,
    out: TensorData | None = None,
) -> TensorData:
    """out = fn(x + bias), or x + bias where `fn` is None, for x [R, N] and bias [N]."""
    fn = fn or operators.identity
    if out is None:
        out = empty(x.shape, x.storage.dtype)
    elif (
        not out.is_contiguous()
        or overlap(bias, out)
        or (overlap(x, out) and not same_window(x, out))
    ):
        copy_into(out, bias_activation(x, bias, fn))
        return out
    a, b, z = contiguous(x).flat(), contiguous(bias).flat(), out.flat()
    mode = repeat_mode(len(b), 1, a, b, z)
    ROWS[fn][ceil_div(len(z), STEP), THREADS](a, b, z, 1, mode)
    return out


def bias_activation_backward(
    grad: TensorData, x: TensorData, bias: TensorData, fn_backward: Callable
) -> TensorData:
    """The gradient for x [R, N]: fn_backward(grad, x + bias)."""
    out = empty(x.shape, x.storage.dtype)
    z: Any = out.flat()
    g, a, b = contiguous(grad).flat(), contiguous(x).flat(), contiguous(bias).flat()
    mode = min(repeat_mode(len(b), 1, a, b, z), repeat_mode(len(b), 1, g, b, z))
    BACKWARD[fn_backward][ceil_div(len(z), STEP), THREADS](g, a, b, z, mode)
    return out


# ------------------------------------------------------------------------ of few rows

# Rows at most: each costs another pass over the weight's registers.
FEW = 8
# Threads of a multiprocessor that shall have room for their registers. Of more, which
# leave room for the next kernel's beside them, some must spill: a sixth slower.
RESIDENT = 768
# Numbers of a row that a block normalizes: what fits into its shared memory.
LONGEST_NORM = 8192
# Numbers of a row of the weight in a thread's registers.
MOST = 32
# Numbers at whose multiples shares of `soon` begin.
UNIT = 64


class Around(NamedTuple):
    """What a kernel does around the product.

    Attributes:
        norm: whether a layer norm has a weight and a bias; None: no norm.
        bias, residual: whether they are added.
        settled: whether weights and biases are read before the kernel before is over.
        kept: whether the last columns also go to a cache.
        scaled: whether the weight is of bytes, and each of its rows has a scale.
        fn: a function of the sum with the bias.
    """

    norm: tuple[bool, bool] | None = None
    bias: bool = False
    residual: bool = False
    settled: bool = False
    kept: bool = False
    scaled: bool = False
    fn: Callable | None = None


def few_template(fit: Fit, around: Around) -> Callable:
    """The Python function of `linear_rows`."""
    group, items, rows, threads = fit.group, fit.items, fit.rows, fit.threads
    read, total_of, zero = row_reader(fit), summed(group), fit.kind(0)
    norm, bias, residual = around.norm is not None, around.bias, around.residual
    (weighted, shifted), settled = around.norm or (False, False), around.settled
    kept, scaled = around.kept, around.scaled
    whole = Fit(float32, fit.width, threads, ceil_div(items * group, threads * 4) * 4)
    size, part = (threads * whole.items, whole.items) if norm else (1, 1)
    first, keep = row_reader(whole), row_writer(whole)
    normalize = row_normalized(whole, False, False)
    fn = device_function(around.fn or operators.identity, float32=True)

    def linear_rows(
        x, w, b, more, gain, shift, eps, out, cache, slot, soon, scale, notes, sizes
    ):  # fmt: skip
        """out = residual + fn(layer_norm(x) @ weight^T * scale + bias): few rows of x.

        # x [R, K], w [N, K], scale, b [N], more [R, N], gain, shift [K] -> out [R, N]
        # cache [R, H, S, E], slot [1]: its [:, :, slot] are the last H E columns of out
        # soon [*]: will be read by another kernel

        A warp, or for long rows a block, has a row of the weight in registers, up to 32
        numbers in each lane; all of it is on its way before anything waits. Rows of x
        come from the caches. A weight of bytes is converted on its way to registers,
        four numbers of a load, and then is as any other; its row's scale waits for the
        sum. A norm is made meanwhile, by each block for itself, and kept in shared
        memory: that costs less than the launch of its own kernel. What
        is settled is read while the kernel before ends; and as memory has little to do
        in these kernels, each block has a share of `soon` come to the cache.
        """
        R, N, K, H, S, E = sizes
        z = cuda.local.array(items, np.float32)
        v = cuda.local.array(items, np.float32)
        own = cuda.local.array(part, np.float32)
        room = cuda.local.array(part, np.float32)
        factor = cuda.local.array(part, np.float32)
        row = cuda.shared.array(size, np.float32)
        cells = cuda.shared.array(WARP, np.float32)
        more_cells = cuda.shared.array(WARP, np.float32)
        last_cells = cuda.shared.array(WARP, np.float32)
        tid = cuda.threadIdx.x
        t, n = tid % group, cuda.blockIdx.x * rows + tid // group
        if tid == 0:
            share = quotient(soon.size, cuda.gridDim.x * UNIT) * UNIT + UNIT
            start = cuda.blockIdx.x * share
            if start < soon.size:
                prefetch(soon, start, min(share, soon.size - start))
        if not settled:
            wait_for_previous()
        read(w, min(n, N - 1) * K, K, t, zero, v)
        if weighted:
            first(gain, 0, K, tid, zero, factor)
        if shifted:
            first(shift, 0, K, tid, zero, room)
        after = load(b, min(n, N - 1)) if bias else zero
        step = load(scale, min(n, N - 1)) if scaled else zero
        if settled:
            wait_for_previous()
        for r in range(R):
            if norm:
                first(x, r * K, K, tid, zero, own)
                normalize(own, own, eps, gain, shift, K, tid, cells, more_cells)
                for k in range(part):
                    own[k] = (own[k] * factor[k] if weighted else own[k]) + (
                        room[k] if shifted else zero
                    )
                keep(row, 0, K, tid, own)
                barrier()
                read(row, 0, K, t, zero, z)
            else:
                read(x, r * K, K, t, zero, z)
            total = zero
            for k in range(items):
                total += v[k] * z[k]
            place = slot[0] if kept else 0  # on its way during the sum
            total = total_of(total, t, last_cells)
            if t == 0 and n < N:
                total = total * step if scaled else total
                total = fn(total + after if bias else total)
                if residual:
                    total += load(more, r * N + n)
                store(out, r * N + n, total)
                if kept and n >= N - H * E:
                    column = uint32(n - (N - H * E))  # registers are few: 32 bits
                    head = column // uint32(E)
                    at = ((r * H + int64(head)) * S + place) * E
                    if 0 <= place < S:
                        store(cache, at + int64(column - head * uint32(E)), total)
                    elif n == N - 1:
                        bad_index(notes, 4, place, S, 2)
            if norm or group > WARP:
                barrier()  # before the next row takes the cells

    return linear_rows


# x, weight, bias, residual, the norm's weight, bias and eps; out; what is kept; soon;
# the scales; notes; sizes.
FEW_EXAMPLE = (
    "T[] W[] T[] T[] T[] T[] float32 T[] T[] int64[] W[] float32[] int64[] 6*int64"
)


@cache
def few_kernel(fit: Fit, around: Around, examples: tuple[str, ...] = ()) -> Kernel:
    """The kernel for rows that lie so in registers."""
    words = fit.width, fit.group, fit.items, *around[:6]
    name = f"linear_rows[{','.join(map(str, words))}"
    name += f",{around.fn.__name__}]" if around.fn else "]"
    ours = around.fn is None or getattr(operators, around.fn.__name__, 0) is around.fn
    return Kernel(
        few_template(fit, around), name, examples, fit.threads, on_disk=ours,
        launch_bounds=fit.threads, resident=max(1, RESIDENT // fit.threads),
        overlaps=True,
    )  # fmt: skip


for _around in Around(kept=True), Around(fn=operators.gelu_tanh):
    for _scaled in False, True:
        few_kernel(
            Fit(float32, 4, WARP, 24),
            _around._replace(
                norm=(True, True), bias=True, settled=True, scaled=_scaled
            ),
            tuple(
                FEW_EXAMPLE.replace("T", kind).replace("W", "int8" if _scaled else kind)
                for kind in ("float32", "bfloat16")
            ),
        )


def few_fit(K: int, width: int) -> Fit | None:
    """The fewest threads that have room for K numbers."""
    fits = (
        Fit(float32, width, group, ceil_div(K, group * width) * width)
        for group in (WARP, BLOCK // 2, BLOCK, LARGE)
    )
    return next((fit for fit in fits if fit.items <= MOST), None)


def linear_of_few(
    x: TensorData,
    weight: TensorData,
    bias: TensorData | None = None,
    fn: Callable | None = None,
    residual: TensorData | None = None,
    norm: NormOf | None = None,
    settled: bool = False,
    kept: Kept | None = None,
    soon: TensorData | None = None,
    scale: TensorData | None = None,
) -> TensorData | None:
    """As `linear`: by a kernel for up to `FEW` rows of float32 or halves that lie one
    behind the other."""
    (R, K), N, dtype = x.shape, weight.shape[0], x.dtype
    alike = weight.is_contiguous() and computed(dtype) is float32 and R <= FEW
    wanted = dtype if scale is None else int8
    if not alike or 0 in (R, K, N) or weight.dtype is not wanted:
        return None
    if kept and not (kept[0].is_contiguous() and kept[0].dtype is dtype):
        return None
    if norm is not None and (R > 1 or K > LONGEST_NORM):  # once for all blocks
        x, norm = layer_norm(x, *norm)[0], None
    gain, shift, eps = norm or (None, None, 0.0)
    given = x, weight, bias, residual, gain, shift, scale
    flat: list[Any] = [a if a is None else contiguous(a).flat() for a in given]
    vectors = [flat[i] for i in (0, 1, 4, 5) if given[i] is not None]
    fit = few_fit(K, width_of(K, float32, *vectors))
    if fit is None:
        return None
    out = empty((R, N), dtype)
    about = (gain is not None, shift is not None) if norm else None
    settled = settled and all(a is None or a.is_contiguous() for a in given)  # no copy
    added = bias is not None, residual is not None
    around = Around(about, *added, settled, kept is not None, scale is not None, fn)
    cache, slot = [a.flat() for a in kept] if kept else (flat[0], notes())
    later = flat[1][:0]
    if soon is not None and soon.is_contiguous() and soon.dtype is wanted:
        later = soon.flat() if is_aligned(soon.flat()) else later
    few_kernel(fit, around)[ceil_div(N, fit.rows), fit.threads](
        *(flat[0] if a is None else a for a in flat[:6]), np.float32(eps), out.flat(),
        cache, slot, later, flat[0] if scale is None else flat[6], notes(),
        (R, N, K, *(kept[0].shape[1:] if kept else (0, 0, 1))),
    )  # fmt: skip
    if kept:
        after_launch()
    return out


def linear(
    x: TensorData,
    weight: TensorData,
    bias: TensorData | None = None,
    fn: Callable | None = None,
    residual: TensorData | None = None,
    norm: NormOf | None = None,
    settled: bool = False,
    kept: Kept | None = None,
    soon: TensorData | None = None,
    scale: TensorData | None = None,
) -> TensorData | None:
    """As `Backend.linear`: for few rows, or a product to which a bias is added."""
    if len(x.shape) == 2 and x.shape[0] > FEW:
        if bias is None or any(
            p is not None for p in (fn, residual, norm, kept, scale)
        ):
            return None
        return matmul_bias(x, weight.permute((1, 0)), bias)
    return linear_of_few(
        x, weight, bias, fn, residual, norm, settled, kept, soon, scale
    )
