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
from numba import cuda, int64, uint16, uint32

from cuda_ops.block.intrinsics import (
    WARP,
    device,
    from_bytes,
    from_fours,
    is_aligned,
    load,
    load2,
    load4,
    prefetch,
    store,
    store4,
    wait_for_previous,
)
from cuda_ops.block.rows import (
    BLOCK,
    Fit,
    barrier,
    row_reader,
    row_writer,
    summed,
    width_of,
)
from cuda_ops.block.tiles import quotient
from cuda_ops.elementwise import ROW, repeat_mode, same_window, zip_repeated
from cuda_ops.half import READERS, float_of, word_of
from cuda_ops.index_errors import after_launch, bad_index, notes
from cuda_ops.linear_halves import (
    HALVES_EXAMPLE,
    LEAST,
    MOST,
    UNIT,
    WARPS,
    HalvesCut,
    fits,
    halves_cut,
    halves_template,
    suits,
)
from cuda_ops.matmul.matmul import matmul_bias
from cuda_ops.memory import STEP, THREADS, contiguous, copy_into, empty, overlap
from cuda_ops.norm import layer_norm, row_normalized
from cuda_ops.runtime.arrays import ARRAYS
from cuda_ops.runtime.device import compute_capability
from cuda_ops.runtime.launch import (
    SIMULATED,
    Kernel,
    Kernels,
    ceil_div,
    device_function,
)
from minitorch import operators
from minitorch.backend.linear import Kept, NormOf
from minitorch.dtypes import DType, bfloat16, computed, float32, int8, int32
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
# Numbers of a row that a block normalizes: more leave too few registers.
LONGEST_NORM = 4096
# Words of the weight that are on their way to a thread, of 4 bytes.
WORDS = 32


class Cut(NamedTuple):
    """How a weight [N, K] is shared out.

    Attributes:
        dtype: of the weight.
        width: numbers of a load: 4, or 1 where rows begin anywhere; 8 of four bits.
        group: threads that share rows of the weight: a warp, or several.
        lines: rows of the weight for them.
        loads: of each of these rows that are on their way at the same time.
        whole: whether these loads are all of a row.
        many: rows of x, at most.
        part: numbers of a row that is normalized, for a thread; 0: there is no norm.
        pack: numbers of a row that share a scale and have four bits; 0: they have more.
    """

    dtype: DType
    width: int
    group: int
    lines: int
    loads: int
    whole: bool
    many: int
    part: int = 0
    pack: int = 0

    @property
    def threads(self) -> int:
        """Of a block."""
        return BLOCK if self.part else max(BLOCK // 2, self.group)

    @property
    def rows(self) -> int:
        """Of the weight, for a block."""
        return self.threads // self.group * self.lines

    @property
    def words(self) -> int:
        """Of a load; beside one of four bits there is its scale."""
        return words_of_load(self.dtype, self.width)

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor that shall have room for their registers. Of more,
        which leave room for the next kernel's beside them, some would spill."""
        many = self.lines * self.many > 4 or self.part > 4
        return max(1, (512 if many else 768) // self.threads)


def words_of_load(dtype: DType, width: int) -> int:
    """Of 4 bytes; a number that is loaded by itself is kept as a float."""
    return max(1, width * dtype.itemsize // 4)


def few_cut(
    dtype: DType, width: int, R: int, N: int, K: int, norm: bool, pack: int = 0
) -> Cut:
    """The cut of a weight [N, K] for R rows of x.

    Threads with several rows of the weight read x once for all of them. But the GPU
    wants to have many loads under way: where N is small, more threads share a row.
    """
    many, words = 1 << (R - 1).bit_length(), words_of_load(dtype, width)
    row = ceil_div(K, width * WARP) * words  # its words in each lane of a warp
    if many > 1:
        lines, warps, least = 4 if N >= WARPS // 2 else 1, WARPS, 4
        if pack and many > 4 and N < 3 * WARPS:
            lines = min(lines, 2)
    else:
        wide = N >= 4 * WARPS or (dtype is int8 and row > 2 * WORDS)
        lines = next(p for p in (4, 2, 1) if wide or p == 1 or p * row <= WORDS)
        warps, least = 3 * WARPS, 24
    group = WARP
    while group < BLOCK and N * group < lines * warps * WARP:
        if K < least * width * group:
            break
        group *= 2
    # The compiler unrolls the loop over loads, if it is not too long.
    steps = lines * (many + 3) if pack else 1  # of four bits it has more in it
    most, all_ = min(WORDS // words, 24) // lines, ceil_div(K, width * group)
    if dtype is int8 and all_ > most:
        most = min(most, 16 // lines)
    part = ceil_div(K, BLOCK * 4) * 4 if norm else 0
    count = max(1, min(most, 32 // many, all_, 75 // steps))
    whole = K == count * width * group
    return Cut(dtype, width, group, lines, count, whole, many, part, pack)


def packs(size: int, K: int) -> bool:
    """Whether groups of `size` numbers, of four bits, are the shares of whole lanes."""
    return K % size == 0 and size in (8, 16, 32, 64, 128, 256)


class Around(NamedTuple):
    """What a kernel does around the product.

    Attributes:
        norm: whether a layer norm has a weight and a bias; None: no norm.
        bias, residual: whether they are added.
        settled: whether weights and biases are read before the kernel before is over.
        kept: whether the last columns also go to a cache.
        scaled: whether each row of the weight has one scale.
        fn: a function of the sum with the bias.
    """

    norm: tuple[bool, bool] | None = None
    bias: bool = False
    residual: bool = False
    settled: bool = False
    kept: bool = False
    scaled: bool = False
    fn: Callable | None = None


def line_reader(cut: Cut) -> tuple[Callable, Callable]:
    """Make `fetch` and `numbers` for the loads of a weight.

        fetch(w, scale, at, v, k)    v[k:] = a load of w, from word `at` on
        numbers(v, k, y, j)          y[j:] = these numbers as float32

    Words are not looked at until they are multiplied: what is on its way takes no more
    registers than bytes, and the next load waits for nothing. Of four bits, a load is a
    word of eight numbers and the scale of their group, which is its neighbours' too.
    """
    reader: Any = READERS.get(cut.dtype)
    to_group = (cut.pack // 8).bit_length() - 1

    def fetch_one(w, scale, at, v, k):
        v[k] = word_of(np.float32(load(w, at)))

    def fetch_bytes(w, scale, at, v, k):
        v[k] = load(w, at)

    def fetch_fours(w, scale, at, v, k):
        v[k] = load(w, at)
        v[k + 1] = word_of(np.float32(load(scale, at >> to_group)))

    def fetch_halves(w, scale, at, v, k):
        v[k], v[k + 1] = load2(w, at)

    def fetch_floats(w, scale, at, v, k):
        v[k], v[k + 1], v[k + 2], v[k + 3] = load4(w, at)

    def one(v, k, y, j):
        y[j] = float_of(v[k])

    def bytes_(v, k, y, j):
        y[j], y[j + 1], y[j + 2], y[j + 3] = from_bytes(v[k])

    def fours(v, k, y, j):
        floats = from_fours(v[k])
        for e in range(8):
            y[j + e] = floats[e]

    def halves(v, k, y, j):
        for e in range(2):
            y[j + 2 * e] = reader(uint16(v[k + e] & uint32(0xFFFF)))
            y[j + 2 * e + 1] = reader(uint16(v[k + e] >> uint32(16)))

    def floats(v, k, y, j):
        for e in range(4):
            y[j + e] = float_of(v[k + e])

    pairs = {1: (fetch_bytes, bytes_), 2: (fetch_halves, halves)}
    both = pairs.get(cut.words, (fetch_floats, floats))
    both = (fetch_fours, fours) if cut.pack else both
    fetch, numbers = (fetch_one, one) if cut.width == 1 else both
    return device(fetch), device(numbers)


def finisher(around: Around) -> Callable:
    """Make `finish(total, after, r, n, ...)`: what becomes of a product, and is stored.

    `after` is the bias.
    """
    bias, residual, kept = around.bias, around.residual, around.kept
    fn = device_function(around.fn or operators.identity, float32=True)

    def finish(total, after, r, n, more, out, cache, place, notes, sizes):
        _, N, _, H, S, E = sizes
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

    return device(finish)


def few_template(cut: Cut, around: Around) -> Callable:
    """The Python function of `linear_rows`."""
    _, width, group, lines, loads, whole, many, part, pack = cut
    words, threads = cut.words, cut.threads
    coming, factors, outputs = loads * lines * words, lines * width, lines * many
    # From one load of a lane to its next, in numbers and in words.
    apart = 1 if pack else words
    step, skip = width * group, apart * group
    fetch, numbers = line_reader(cut)
    total_of, zero = summed(WARP), float32.numpy.type(0)
    norm, bias = around.norm is not None, around.bias
    (weighted, shifted), settled = around.norm or (False, False), around.settled
    kept, scaled = around.kept, around.scaled
    of_group = pack // 8 or 1  # lanes that share a group
    # A row that is normalized lies in the registers of the whole block.
    fit, size = Fit(float32, min(width, 4), threads, part), threads * part or 1
    part = part or 1
    first, keep = row_reader(fit), row_writer(fit)
    normalize = row_normalized(fit, False, False)
    finish = finisher(around)

    @device
    def multiply(x, x_at, v, u, y, z, totals):
        """Add the products of all rows' loads number u."""
        for p in range(lines):
            numbers(v, (u * lines + p) * words, y, p * width)
        for q in range(many):
            if width == 1:
                z[0] = load(x, x_at[q] + u * step)
            else:
                z[0], z[1], z[2], z[3] = load4(x, x_at[q] + u * step)
            if pack:
                z[4], z[5], z[6], z[7] = load4(x, x_at[q] + u * step + pack // 2)
            for p in range(lines):
                total = zero if pack else totals[p * many + q]
                for e in range(width):
                    total += y[p * width + e] * z[e]
                if pack:
                    factor = float_of(v[(u * lines + p) * words + 1])
                    total = totals[p * many + q] + total * factor
                totals[p * many + q] = total

    def linear_rows(
        x, w, b, more, gain, shift, eps, out, cache, slot, soon, scale, notes, sizes
    ):  # fmt: skip
        """out = residual + fn(layer_norm(x) @ weight^T * scale + bias): few rows of x.

        # x [R, K], w [N, K], scale, b [N], more [R, N], gain, shift [K] -> out [R, N]
        # cache [R, H, S, E], slot [1]: its [:, :, slot] are the last H E columns of out
        # soon [*]: will be read by another kernel

        A warp has some rows of the weight. Its first loads are on their way before
        anything waits, and each that is used up makes room for one further behind; they
        become floats when they are multiplied. Rows of x come from the caches. A norm
        is made meanwhile, by each block for itself, and kept in shared memory: that
        costs less than the launch of its own kernel. What is settled is read while the
        kernel before ends; and as memory has little to do in short kernels, each block
        has a share of `soon` come to the cache.
        """
        R, N, K = sizes[:3]
        v = cuda.local.array(coming, np.uint32)
        y = cuda.local.array(factors, np.float32)
        z = cuda.local.array(width, np.float32)
        w_at = cuda.local.array(lines, np.int64)
        x_at = cuda.local.array(many, np.int64)
        totals = cuda.local.array(outputs, np.float32)
        own = cuda.local.array(part, np.float32)
        room = cuda.local.array(part, np.float32)
        factor = cuda.local.array(part, np.float32)
        row = cuda.shared.array(size, np.float32)
        cells = cuda.shared.array(threads, np.float32)
        more_cells = cuda.shared.array(WARP, np.float32)
        tid = cuda.threadIdx.x
        t = tid % group
        line = (cuda.blockIdx.x * (threads // group) + tid // group) * lines
        if tid == 0:
            share = quotient(soon.size, cuda.gridDim.x * UNIT) * UNIT + UNIT
            start = cuda.blockIdx.x * share
            if start < soon.size:
                prefetch(soon, start, min(share, soon.size - start))
        if not settled:
            wait_for_previous()
        left = np.int32(K - width * t)  # the lane's first number has so many behind it
        for p in range(lines):
            w_at[p] = (min(line + p, N - 1) * K + width * t) // width * apart
            for u in range(loads):
                at = w_at[p] + u * skip if u * step < left else 0
                fetch(w, scale, at, v, (u * lines + p) * words)
        if weighted:
            first(gain, 0, K, tid, zero, factor)
        if shifted:
            first(shift, 0, K, tid, zero, room)
        # The thread's own output, at the end: one of `lines` x `many`.
        n, r = line + t // many, t % many
        after = load(b, min(n, N - 1)) if bias else zero
        scale_of = load(scale, min(n, N - 1)) if scaled else zero
        if settled:
            wait_for_previous()
        place = slot[0] if kept else 0
        if norm:
            first(x, 0, K, tid, zero, own)
            normalize(own, own, eps, gain, shift, K, tid, cells, more_cells)
            for k in range(part):
                own[k] = (own[k] * factor[k] if weighted else own[k]) + (
                    room[k] if shifted else zero
                )
            keep(row, 0, K, tid, own)
            barrier()
        begin = t // of_group * pack + t % of_group * 4 if pack else width * t
        for q in range(many):
            x_at[q] = min(q, R - 1) * K + begin
        for k in range(outputs):
            totals[k] = zero
        for _ in range(0, 1 if whole else K, loads * step):
            for u in range(loads):
                if whole or u * step < left:
                    if norm:
                        multiply(row, x_at, v, u, y, z, totals)
                    else:
                        multiply(x, x_at, v, u, y, z, totals)
                if not whole and (loads + u) * step < left:
                    for p in range(lines):
                        at = w_at[p] + (loads + u) * skip
                        fetch(w, scale, at, v, (u * lines + p) * words)
            left -= loads * step
            for p in range(lines):
                w_at[p] += loads * skip
            for q in range(many):
                x_at[q] += loads * step
        total = zero
        for k in range(outputs):
            sum_of_warp = total_of(totals[k], t, cells)
            total = sum_of_warp if tid % WARP == k else total
        if group > WARP:
            barrier()  # Nobody reads the cells of the norm any more.
            cells[tid] = total
            barrier()
            total = zero
            for k in range(group // WARP):
                total += cells[tid - t + k * WARP + t % WARP]
        if t < outputs and r < R and n < N:
            total = total * scale_of if scaled else total
            finish(total, after, r, n, more, out, cache, place, notes, sizes)

    return linear_rows


# x, the weight's words, bias, residual, the norm's weight, bias and eps; out; what is
# kept; soon; the scales; notes; sizes.
FEW_EXAMPLE = (
    "T[] int32[] T[] T[] T[] T[] float32 T[] T[] int64[] int32[] float32[] int64[] "
    + "6*int64"
)


def _named(name: str, words: tuple[Any, ...], fn: Callable | None) -> tuple[str, bool]:
    """A kernel's name, and whether its code may be kept: `fn` is the library's."""
    ends = () if fn is None else (fn.__name__,)
    ours = fn is None or getattr(operators, fn.__name__, 0) is fn
    return f"{name}[{','.join(map(str, (*words, *ends)))}]", ours


@cache
def few_kernel(cut: Cut, around: Around, examples: tuple[str, ...] = ()) -> Kernel:
    """The kernel for a weight that is shared out so."""
    words = cut.dtype.name, *cut[1:], *around[:6]
    name, ours = _named("linear_rows", words, around.fn)
    return Kernel(
        few_template(cut, around), name, examples, cut.threads, on_disk=ours,
        launch_bounds=cut.threads, resident=cut.resident, overlaps=True,
    )  # fmt: skip


for _dtype, _pack in (float32, 0), (bfloat16, 0), (int8, 0), (int8, 64):
    for _rows, _norm in (1, True), (FEW, False):
        few_kernel(
            few_cut(
                _dtype, 8 if _pack else 4, _rows, 4 * WARPS, LONGEST_NORM, _norm, _pack
            ),
            Around(
                (True, True) if _norm else None, True, not _norm, True, _norm,
                _dtype is int8 and not _pack, None if _norm else operators.gelu_tanh,
            ),
            tuple(
                FEW_EXAMPLE.replace("T", kind.name)
                for kind in ((float32, bfloat16) if _dtype is int8 else (_dtype,))
            ),
        )  # fmt: skip


@cache
def halves_kernel(
    cut: HalvesCut, around: Around, examples: tuple[str, ...] = ()
) -> Kernel:
    """The kernel for a weight of halves that is shared out so."""
    words = *cut, *around[1:6]
    name, ours = _named("linear_halves", words, around.fn)
    return Kernel(
        halves_template(cut, around, finisher(around)), name, examples, BLOCK,
        on_disk=ours, launch_bounds=BLOCK, resident=cut.resident, overlaps=True,
        arch=(8, 0),
    )  # fmt: skip


for _rows, _bits, _pack in (LEAST, 16, 0), (MOST, 16, 0), (MOST, 8, 0), (LEAST, 4, 64):
    halves_kernel(
        halves_cut(bfloat16, _rows, 4 * WARPS, LONGEST_NORM, _bits, _pack),
        Around(None, True, True, True, _rows == LEAST, _bits == 8, operators.gelu_tanh),
        (HALVES_EXAMPLE.replace("T", "bfloat16"),),
    )


def words_of(array: Any) -> Any:
    """A flat array of numbers as words of 4 bytes, as many as there are whole ones."""
    if SIMULATED:
        return array[: array.nbytes // 4 * 4 // array.itemsize].view(np.int32)
    count = array.size * array.itemsize // 4
    return ARRAYS[int32](array.pointer, count, None, array)


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
    """As `linear`: by a kernel for up to `FEW` rows of float32 or halves, and up to
    `MOST` of halves on the tensor cores, that lie one behind the other."""
    (R, K), N, dtype = x.shape, weight.shape[0], x.dtype
    pack = weight.shape[2] * 2 if len(weight.shape) == 3 else 0
    bits = 16 if scale is None else 4 if pack else 8
    halves = LEAST <= R <= MOST and dtype.half and fits(K, bits, pack)
    halves = halves and suits(R, N, K, bits)
    halves = halves and (SIMULATED or compute_capability() >= (8, 0))
    alike = weight.is_contiguous() and computed(dtype) is float32
    alike = alike and (R <= FEW or halves) and (not pack or packs(pack, K))
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
    width = width_of(K, float32, *vectors)
    if (R > FEW or pack) and width == 1:
        return None
    out = empty((R, N), dtype)
    about = (gain is not None, shift is not None) if norm else None
    settled = settled and all(a is None or a.is_contiguous() for a in given)  # no copy
    added = bias is not None, residual is not None
    by_row = scale is not None and not pack
    around = Around(about, *added, settled, kept is not None, by_row, fn)
    cache, slot = [a.flat() for a in kept] if kept else (flat[0], notes())
    w = flat[1] if width == 1 else words_of(flat[1])
    later = words_of(flat[1])[:0]
    if soon is not None and soon.is_contiguous() and is_aligned(soon.flat()):
        later = words_of(soon.flat())
    heads = kept[0].shape[1:] if kept else (0, 0, 1)
    factors = flat[0] if scale is None else flat[6]
    if halves and width == 4:
        shared = halves_cut(dtype, R, N, K, bits, pack)
        halves_kernel(shared, around)[ceil_div(N, shared.rows), BLOCK](
            words_of(flat[0]), w, *(flat[0] if a is None else a for a in flat[2:4]),
            out.flat(), cache, slot, later, factors, notes(), (R, N, K, *heads),
        )  # fmt: skip
        if kept:
            after_launch()
        return out
    width = 8 if pack else width
    cut = few_cut(wanted, width, R, N, K, norm is not None, pack)
    few_kernel(cut, around)[ceil_div(N, cut.rows), cut.threads](
        flat[0], w, *(flat[0] if a is None else a for a in flat[2:6]), np.float32(eps),
        out.flat(), cache, slot, later, factors, notes(), (R, N, K, *heads),
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
    if x.shape[0] <= MOST:
        made = linear_of_few(
            x, weight, bias, fn, residual, norm, settled, kept, soon, scale
        )
        if made is not None or x.shape[0] <= FEW:
            return made
    if bias is None or not fn is residual is norm is kept is scale is None:
        return None
    return matmul_bias(x, weight.permute((1, 0)), bias)
