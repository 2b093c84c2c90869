"""Who multiplies in an attention kernel: the ordinary units or the tensor cores.

With this file one can cut attention into blocks (`Cut`), and get what a kernel needs to
multiply with either kind of units (`units_of`). A kernel is written once; the units are
a parameter of its template.

A block keeps some rows in shared memory as long as it lives, the *resident* ones, and
lets tiles of others, the *passing* ones, come by. It multiplies twice for each tile:

    scores [rows, cols]  +=  resident [rows, size] @ passing [cols, size].T
    sums   [rows, size]  +=  weights [rows, cols]  @ passing [cols, size]

Operands are float32, or halves, which only the tensor cores multiply. Halves stay in
shared memory as they come, rounded once: what shall be scaled is scaled behind the
product, in float32, and weights become halves for the second product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import float32, uint16

from cuda_ops.attention.held import Held, laid, scaled
from cuda_ops.block import wgmma
from cuda_ops.block.copies import Copy, copier
from cuda_ops.block.intrinsics import WARP, load4, store4, sync_warp
from cuda_ops.block.mma import BF16, F16, HALVES, TF32, Strips, mma_of_sums, mma_tile
from cuda_ops.block.tiles import Side, Tile, fma_tile, inlined, thread_index
from cuda_ops.simulator import TINY

FMA = "float32"
UNITS = (FMA, TF32, BF16, F16)
# Steps of one call of the ordinary units: what is unrolled.
DEPTH = 8 if TINY else 16
# Numbers of float32 that one load fetches.
VECTOR = 4


class Cut(NamedTuple):
    """How a block is cut into warps, and a warp into lanes.

    Attributes:
        units: `FMA`, or the type of the tensor cores' factors.
        size: numbers of a row: head sizes up to it are filled up with zeros.
        warps: of a block.
        warp_rows: resident rows of a warp.
        cols: rows of a passing tile.
        thread_rows: of a lane (of the ordinary units).
        blocks: that shall share a multiprocessor, which limits registers.
        arch: the oldest compute capability whose assembler gets by with these.
        wgmma: whether four warps together multiply halves, 16 rows each, as
            `matmul_warpgroup` does. Rows lie in lines of 128 bytes then, the first
            lines of all rows before the second ones.
    """

    units: str
    size: int
    warps: int
    warp_rows: int
    cols: int
    thread_rows: int = 8
    blocks: int = 1
    arch: tuple[int, int] = (7, 5)
    wgmma: bool = False

    @property
    def half(self) -> bool:
        """Whether operands have 16 bits."""
        return self.units in HALVES

    @property
    def number(self) -> Any:
        """The type of operands in kernels."""
        return uint16 if self.half else float32

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return 2 if self.half else 4

    @property
    def rows(self) -> int:
        return self.warps * self.warp_rows

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def lane_rows(self) -> int:
        """Lines of lanes in a warp."""
        return self.warp_rows // self.thread_rows

    @property
    def lane_cols(self) -> int:
        return WARP // self.lane_rows

    @property
    def pitch(self) -> int:
        """From one passing row to the next: 16 bytes more, for other banks."""
        return self.line if self.wgmma else self.size + 16 // self.item

    @property
    def line(self) -> int:
        """Numbers of a row that lie side by side."""
        return 2 * wgmma.DEPTH if self.wgmma else self.size

    @property
    def resident_strides(self) -> tuple[int, int]:
        """From one resident row to the next, and from one of its numbers.

        The ordinary units take four rows at once, so rows lie side by side; the tensor
        cores are dealt lines.
        """
        return (1, self.rows + 4) if self.units == FMA else (self.pitch, 1)

    @property
    def resident(self) -> int:
        """Elements of shared memory for resident rows."""
        if self.units == FMA:
            return self.size * (self.rows + 4)
        return self.rows * self.pitch * (self.size // self.line)

    @property
    def passing(self) -> int:
        """Elements of shared memory for a passing tile."""
        return self.cols * self.pitch * (self.size // self.line)

    @property
    def aside_pitch(self) -> int:
        """From one column of weights to the next in shared memory."""
        return self.rows + 8

    @property
    def aside(self) -> int:
        """Elements of shared memory for weights, [cols, rows]; none in registers."""
        return self.cols * self.aside_pitch if self.units == FMA else 0

    def copy(self, lines: int, elements: int, asynchronous: bool) -> Copy:
        """How a passing tile's rows, `lines` of them, are copied, or a line of each."""
        return Copy(
            self.line, lines, self.pitch, self.threads, elements, asynchronous, True,
            self.wgmma,
        )  # fmt: skip


class Units(NamedTuple):
    """What a kernel multiplies with.

    Attributes:
        scores, sums: which numbers a lane has of either product.
        place: () -> the lane's row and column of the scores; and where it begins to
            read or store: its row, its passing row for scores, its column of sums.
        zero_scores, zero_sums: () -> zeros.
        multiply: (s, shared, resident_at, passing_at) -> s + resident @ passing.T
        weigh: (sums, weights, shared, aside_at, passing_at) -> sums + weights @ passing
        store: of `fma_tile` and `mma_tile`.
        temper: (scores, factor of each row) -> scores, times what `filler` has left.
    """

    scores: Held
    sums: Held
    place: Callable
    zero_scores: Callable
    zero_sums: Callable
    multiply: Callable
    weigh: Callable
    store: Callable
    temper: Callable


def units_of(cut: Cut) -> Units:
    """The functions for one way to cut; warpgroups multiply as `chain_of` says."""
    return _ordinary(cut) if cut.units == FMA else _tensor_cores(cut)


def _deep(multiply: Callable, size: int, depth: int, a_step: int) -> Callable:
    """`multiply` for `depth` steps, repeated for `size`."""

    def multiply_all(s, shared, a_at, b_at):
        for k in range(0, size, depth):
            s = multiply(s, shared, a_at + k * a_step, b_at + k)
        return s

    return inlined(multiply_all)


# ---------------------------------------------------------------- the ordinary units


def _ordinary(cut: Cut) -> Units:
    """Each lane has thread_rows x cols / lane_cols scores, and as many rows of sums.

    Lanes that share rows are neighbours in pairs, as in `kernels.thread_place`.
    """
    c, lane_cols = cut, cut.lane_cols
    high, wide = c.thread_rows, c.cols // lane_cols
    side = Side(high, VECTOR * c.lane_rows, c.rows + 4, False)
    weights = side._replace(pitch=c.aside_pitch)
    passing = Side(wide, lane_cols, c.pitch, True)
    values = Side(c.size // lane_cols, VECTOR * lane_cols, c.pitch, False)
    zero_scores, multiply, *_ = fma_tile(float32, Tile(side, passing, DEPTH))
    zero_sums, add, store, *_ = fma_tile(float32, Tile(weights, values, DEPTH // 2))
    scores = _held(side, passing, _lanes(c))
    multiply_scores = _deep(multiply, c.size, DEPTH, c.rows + 4)
    lay = laid(scores, 1, c.aside_pitch, VECTOR)
    place, pitch, aside_pitch = _lane_place(c), c.pitch, c.aside_pitch
    cols = c.cols

    def weigh(acc, p, shared, aside_at, b_at):
        row, col, _, _, _ = place()
        lay(shared, aside_at + col * aside_pitch + row, p)
        # A warp's rows of weights are its own.
        sync_warp()
        for k in range(0, cols, DEPTH // 2):
            at = aside_at + k * aside_pitch + row
            acc = add(acc, shared, at, b_at + k * pitch)
        sync_warp()
        return acc

    return Units(
        scores, _held(weights, values, _lanes(c)), place, zero_scores, zero_sums,
        multiply_scores, inlined(weigh), store, inlined(lambda s, factors: s),
    )  # fmt: skip


def _held(a: Side, b: Side, exchanges: tuple[int, ...]) -> Held:
    rows = tuple(a.row(i, VECTOR) for i in range(a.rows))
    cols = tuple(b.row(j, VECTOR) for j in range(b.rows))
    places = tuple((i, j) for i in range(a.rows) for j in range(b.rows))
    return Held(rows, cols, places, exchanges)


def _lanes(cut: Cut) -> tuple[int, ...]:
    """The bits of a lane's number that name its column, see `_lane_place`."""
    pairs = min(cut.lane_rows, 2)
    return tuple(
        1 << bit for bit in range(5) if pairs <= 1 << bit < pairs * cut.lane_cols
    )


def _lane_place(cut: Cut) -> Callable:
    lane_cols, warp_rows = cut.lane_cols, cut.warp_rows
    pairs = min(cut.lane_rows, 2)

    def place():
        index = thread_index()
        warp, lane = index // WARP, index % WARP
        line, rest = lane // (lane_cols * pairs), lane % (lane_cols * pairs)
        row = warp * warp_rows + (line * pairs + rest % pairs) * VECTOR
        col = rest // pairs
        return row, col, row, col, col * VECTOR

    return inlined(place)


# ------------------------------------------------------------------ the tensor cores


def _tensor_cores(cut: Cut) -> Units:
    """A warp has warp_rows x cols scores, spread over its lanes by `mma.sync`."""
    c, strips, depth = cut, cut.warp_rows // 8, min(cut.size, 64)
    left = Strips(strips, c.cols // 8, True, True, depth, c.pitch, c.pitch, c.units)
    right = Strips(strips, c.size // 8, True, False, 16, c.pitch, c.pitch, c.units)
    zero_scores, multiply, _ = mma_tile(left)
    zero_sums, _, store = mma_tile(right)
    add = mma_of_sums(left, right.b_strips, c.pitch)
    scores, warp_rows = _dealt(strips, c.cols // 8), c.warp_rows
    temper = scaled(scores) if c.half else inlined(lambda s, factors: s)

    def place():
        index = thread_index()
        lane, first = index % WARP, index // WARP * warp_rows
        return first + lane // 4, lane % 4 * 2, first, 0, 0

    def weigh(acc, p, shared, aside_at, b_at):
        return add(acc, p, shared, b_at)

    return Units(
        scores, _dealt(strips, right.b_strips), inlined(place), zero_scores, zero_sums,
        _deep(multiply, c.size, depth, 1), inlined(weigh), store, temper,
    )  # fmt: skip


def _dealt(a_strips: int, b_strips: int) -> Held:
    """What a lane has of the outputs of `mma_tile`."""
    rows = tuple(8 * strip for strip in range(a_strips))
    cols = tuple(8 * j + e for j in range(b_strips) for e in range(2))
    places = tuple(
        (2 * i + half, 2 * j + e)
        for i in range(a_strips // 2)
        for j in range(b_strips)
        for half in range(2)
        for e in range(2)
    )
    return Held(rows, cols, places, (1, 2))


# ------------------------------------------------------------------- warpgroups


class Chain(NamedTuple):
    """Two products of a warpgroup: weights, made of the first's sums, go to the second.

    A lane has of both what it has of `mma_tile`.

    Attributes:
        begin_scores: (shared, resident_at, passing_at) -> s, under way.
        words: weights -> weights as halves, two in a word.
        begin_sums: (sums, words, shared, passing_at) -> sums, under way.
        scores_done: s -> s, when all but the newest `pending` products are there.
        all_scores, all_sums: s -> s and sums -> sums, when all products are there.
        sums_behind: (sums, x) -> sums, the same, when so many x have been computed.
    """

    begin_scores: Callable
    words: Callable
    begin_sums: Callable
    scores_done: Callable
    all_scores: Callable
    all_sums: Callable
    sums_behind: Callable


def chain_of(cut: Cut, pending: int = 1, others: int = 2) -> Chain:
    """The products of one way to cut; `resident_at` is where the warp's rows are."""
    c, warp_lines = cut, wgmma.WARP_ROWS * cut.line
    left = wgmma.Group(c.cols, c.size, True, False, c.units, lines=c.rows, fresh=True)
    right = wgmma.Group(c.size, c.cols, True, False, c.units, False)
    take, zero_scores = wgmma.wgmma_tile(left)[1], _tensor_cores(cut).zero_scores
    begin, *rest = wgmma.chained(left, right, pending, others)

    def begin_scores(shared, resident_at, passing_at):
        # The tensor cores want to know where the rows of the first of four warps are.
        warp = thread_index() // WARP % wgmma.WARPS
        factors = take(shared, resident_at - warp * warp_lines)
        return begin(zero_scores(), factors, shared, passing_at)

    return Chain(inlined(begin_scores), *rest)


# ------------------------------------------------------------------ resident rows


def fetcher(cut: Cut, lines: int, elements: int, asynchronous: bool) -> Callable:
    """fetch(shared, to, source, at, stride, rows_left, width)

    It starts to copy `lines` rows as they are, with zeros for rows from rows_left and
    numbers from width on.
    """
    begin, _, load = copier(cut.copy(lines, elements, asynchronous), cut.item)
    line, size = cut.line, cut.size

    def fetch(shared, to, source, at, stride, rows_left, width):
        start, walk = begin(source, at, stride, 1)
        load(shared, to, source, start, walk, rows_left, width)

    def fetch_lines(shared, to, source, at, stride, rows_left, width):
        for k in range(0, size, line):
            start, walk = begin(source, at + k, stride, 1)
            load(shared, to + k * lines, source, start, walk, rows_left, width - k)

    return inlined(fetch_lines if line < size else fetch)


def filler(cut: Cut, elements: int, asynchronous: bool) -> Callable:
    """fill(shared, to, source, at, stride, rows_left, width, factor): resident rows.

        for r in range(rows), k in range(size):
            shared[to + place of (r, k)] = source[at + r * stride + k] * factor

    with zeros for rows from rows_left and numbers from width on. Neighbouring threads
    take neighbouring rows, so that what they store lies side by side where rows do; the
    line of memory that a thread reads from stays in the cache until it is used up.
    Halves are fetched as passing rows are, and `Units.temper` takes the factor.
    """
    if cut.half:
        fetch = fetcher(cut, cut.rows, elements, asynchronous)

        def fill_halves(shared, to, source, at, stride, rows_left, width, factor):
            fetch(shared, to, source, at, stride, rows_left, width)

        return inlined(fill_halves)
    rows, size, threads = cut.rows, cut.size, cut.threads
    row_stride, k_stride = cut.resident_strides
    groups, zero = size // VECTOR, float32(0)

    def fill(shared, to, source, at, stride, rows_left, width, factor):
        for i in range(thread_index(), rows * groups, threads):
            r, k = i % rows, i // rows * VECTOR
            a, b, c, d = zero, zero, zero, zero
            start = at + r * stride + k
            if r < rows_left:
                if elements == VECTOR:
                    if k < width:
                        a, b, c, d = load4(source, start)
                else:
                    a = source[start] if k < width else zero
                    b = source[start + 1] if k + 1 < width else zero
                    c = source[start + 2] if k + 2 < width else zero
                    d = source[start + 3] if k + 3 < width else zero
            place = to + r * row_stride + k * k_stride
            if k_stride == 1:
                store4(shared, place, a * factor, b * factor, c * factor, d * factor)
                continue
            shared[place] = a * factor
            shared[place + k_stride] = b * factor
            shared[place + 2 * k_stride] = c * factor
            shared[place + 3 * k_stride] = d * factor

    return inlined(fill)
