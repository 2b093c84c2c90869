"""FlashAttention: no more than a block of the weights ever exists.

With this file `attention.py` has attention and its gradients, for the shapes of
`minitorch/backend/attention.py`, with memory for QUERIES x KEYS weights a worker.

A block of scores lies with its queries side by side, [KEYS, QUERIES], 32 KiB:

              queries ->          a row is one key times 64 queries: queries are laid
      keys   s00 s01 s02 ...      out as columns, once for all keys (`lay_out`), keys
       |     s10 s11 s12 ...      and values copied row by row (`fetch`), for models
       v     ...                  keep rows of a head thousands of bytes apart

so that a vector holds one score of 16 queries: their maximum and their sum stay in a
register while the keys pass by, and no sum goes across lanes. The same block, read the
other way round, multiplies the values. All products are made by `tile`.

With `causal`, `edge` is the number of the first query of the block that sees the first
key of the block; tiles in which all is hidden are not computed.

A worker takes one task after the other. What a task makes is its own, and every number
is summed in an order that the shapes decide, on any number of threads.

Source: Dao et al., "FlashAttention", 2022; the online softmax: Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018.
"""

from std.math import ceildiv, iota
from std.sys import simd_width_of
from std.utils.numerics import inf

from bridge import BOOL, Arguments, Buffer, Object, Table, by_float
from lines import copy_block, fill, load_part, store_part, woven
from operators import philox
from parallel import Kernel, Team, next_task, parallel_for
from scalar_math import exp_to_add as exp, f32, log

comptime WIDE = simd_width_of[f32]() >= 16  # AVX-512: 32 registers of 16 float32
comptime ROWS = 8  # of a tile
comptime VECTORS = 2 if WIDE else 1  # in a row of a tile
comptime QUERIES = 64  # in a block
comptime KEYS = 128
comptime ROOM = (KEYS + ROWS) * QUERIES  # for a block, and what its last tile reads
comptime FIXED = 12  # numbers of the plan, before offsets and strides
comptime NEVER = -(1 << 40)  # the `edge` where every query sees all keys


# ------------------------------------------------------------------- operands, as given


struct Heads[T: DType](TrivialRegisterPassable):
    """A tensor [B, H, rows, columns], read by heads."""

    var data: Buffer[Self.T]
    var batch: Int  # from one to the next
    var head: Int
    var row: Int
    var column: Int

    def __init__(out self, a: Arguments, i: Int, plan: Table):
        """Array i, and its offset and strides, behind `FIXED` other numbers."""
        var at = FIXED + 5 * i
        self.data = a.buffer[Self.T](i).at(Int(plan[at]))
        self.batch = Int(plan[at + 1])
        self.head = Int(plan[at + 2])
        self.row = Int(plan[at + 3])
        self.column = Int(plan[at + 4])

    @always_inline
    def at(self, b: Int, h: Int, row: Int = 0) -> Buffer[Self.T]:
        return self.data.at(b * self.batch + h * self.head + row * self.row)


@fieldwise_init
struct Sizes(TrivialRegisterPassable):
    """Query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], and what to do."""

    var B: Int
    var H: Int
    var K: Int
    var L: Int
    var S: Int
    var E: Int
    var V: Int
    var causal: Bool
    var blocks: Int  # of the queries of a head


def sizes_of(plan: Table) -> Sizes:
    var n = plan.load[8](0)
    return Sizes(
        Int(n[0]), Int(n[1]), Int(n[2]), Int(n[3]), Int(n[4]), Int(n[5]), Int(n[6]),
        n[7] != 0, ceildiv(Int(n[3]), QUERIES),
    )


struct Block(TrivialRegisterPassable):
    """Where a block of scores lies: queries q0 to q0 + lines - 1 of head h of batch b,
    and keys k0 to k0 + keys - 1."""

    var b: Int
    var h: Int
    var q0: Int
    var lines: Int
    var k0: Int
    var keys: Int
    var edge: Int

    def __init__(out self, s: Sizes, b: Int, h: Int, i: Int):
        """Block i of the queries, and no keys yet."""
        self.b = b
        self.h = h
        self.q0 = i * QUERIES
        self.lines = min(QUERIES, s.L - self.q0)
        self.k0 = 0
        self.keys = 0
        self.edge = NEVER

    @always_inline
    def last(self, s: Sizes) -> Int:
        """How many keys these queries see."""
        return min(s.S, self.q0 + self.lines) if s.causal else s.S

    @always_inline
    def move(mut self, s: Sizes, k0: Int):
        """Go to the keys from k0 on."""
        self.k0 = k0
        self.keys = min(KEYS, self.last(s) - k0)
        self.edge = k0 - self.q0 if s.causal else NEVER

    @always_inline
    def first(self, key: Int) -> Int:
        """The first query that sees a key of the tile from `key` on."""
        return max(0, self.edge + key)

    @always_inline
    def seen[wide: Int](self, query: Int) -> Int:
        """How many keys are seen by the tile of `wide` queries that `query` is in."""
        return min(self.keys, query // wide * wide + wide - self.edge)


# -------------------------------------------------------------------- parts of a block


@always_inline
def lay_out[
    T: DType
](x: Buffer[T], row: Int, lines: Int, width: Int, factor: Scalar[T], z: Buffer[T]):
    """Queries side by side: z [width, QUERIES] = x [lines, width] * factor, rest 0."""
    comptime w = simd_width_of[T]()
    for q in range(0, QUERIES, 8):
        var whole = width // w * w if q + 8 <= lines else 0
        for e in range(0, whole, w):
            var steps = woven[T, w](x.at(q * row + e), row) * factor
            comptime for i in range(w):
                var step = steps.slice[8, offset=8 * i]()
                z.store[8]((e + i) * QUERIES + q, step)
        for e in range(whole, width):
            for i in range(q, q + 8):
                z[e * QUERIES + i] = x[i * row + e] * factor if i < lines else 0


def tile[
    T: DType
](
    a: Buffer[T], a_row: Int, a_step: Int, b: Buffer[T], b_row: Int, depth: Int,
    z: Buffer[T], z_row: Int, rows: Int, columns: Int, factors: Buffer[T], add: Bool,
):
    """z[r, c] = z[r, c] * factors[r] (0 if not `add`) + sum over k of a[r, k] * b[k, c]

    For ROWS rows and VECTORS vectors of columns, whose sums stay in registers; all are
    read and multiplied, the first `rows` and `columns` are written.
    """
    comptime w = simd_width_of[T]()
    comptime V = SIMD[T, w]
    var sums = Array[V, ROWS * VECTORS](fill=V(0))
    for k in range(depth):
        var left = a.at(k * a_step)
        var right = b.at(k * b_row)
        comptime for r in range(ROWS):
            var x = V(left[r * a_row])
            comptime for v in range(VECTORS):
                comptime at = r * VECTORS + v
                sums[at] = right.load[w](v * w).fma(x, sums[at])
    comptime for r in range(ROWS):
        if r < rows:
            comptime for v in range(VECTORS):
                var sum = sums[r * VECTORS + v]
                if add:
                    var before = load_part[w](z.at(r * z_row), v * w, columns, 0)
                    sum = before.fma(V(factors[r]), sum)
                store_part(z.at(r * z_row), v * w, columns, sum)


def score[
    T: DType
](x: Buffer[T], width: Int, columns: Buffer[T], at: Block, z: Buffer[T]):
    """z[k, q] = sum over e of x[k, e] * columns[e, q], where a query sees a key."""
    comptime wide = VECTORS * simd_width_of[T]()
    for i in range(0, at.keys, ROWS):
        for j in range(at.first(i) // wide * wide, at.lines, wide):
            tile(
                x.at(i * width), width, 1, columns.at(j), QUERIES, width,
                z.at(i * QUERIES + j), QUERIES, ROWS, wide, z, False,
            )


def weigh[
    T: DType
](
    weights: Buffer[T], x: Buffer[T], width: Int, at: Block, z: Buffer[T], z_row: Int,
    decay: Buffer[T],
):
    """z[q] = z[q] * decay[q] + sum over k of weights[k, q] * x[k], of the keys seen."""
    comptime wide = VECTORS * simd_width_of[T]()
    for i in range(0, at.lines, ROWS):
        for j in range(0, width, wide):
            tile(
                weights.at(i), 1, QUERIES, x.at(j), width, at.seen[ROWS](i),
                z.at(i * z_row + j), z_row, at.lines - i, width - j, decay.at(i),
                at.k0 > 0,
            )


def weigh_back[
    T: DType
](
    weights: Buffer[T], x: Buffer[T], width: Int, at: Block, z: Buffer[T], z_row: Int,
    ones: Buffer[T],
):
    """z[k] += sum over q of weights[k, q] * x[q], of the queries that see a key."""
    comptime wide = VECTORS * simd_width_of[T]()
    for i in range(0, at.keys, ROWS):
        var q = at.first(i)
        for j in range(0, width, wide):
            tile(
                weights.at(i * QUERIES + q), QUERIES, 1, x.at(q * width + j), width,
                at.lines - q, z.at(i * z_row + j), z_row, at.keys - i, width - j, ones,
                True,
            )


struct Mask[T: DType](TrivialRegisterPassable):
    """Numbers to be added to scores, or whether a query sees a key; or neither."""

    var numbers: Heads[Self.T]
    var shown: Heads[DType.uint8]
    var kind: Int  # 0: no mask, 1: numbers, 2: shown

    def __init__(out self, a: Arguments, i: Int, plan: Table):
        self.numbers = Heads[Self.T](a, i, plan)
        self.shown = Heads[DType.uint8](a, i, plan)
        self.kind = 0 if a.size(i) == 0 else 2 if a.type(i) == BOOL else 1

    def apply(self, at: Block, scores: Buffer[Self.T]):
        """A key that is not shown has a score of -infinity."""
        for q in range(at.lines if self.kind > 0 else 0):
            var numbers = self.numbers.at(at.b, at.h, at.q0 + q)
            var shown = self.shown.at(at.b, at.h, at.q0 + q)
            for k in range(at.seen[1](q)):
                var there = (at.k0 + k) * self.numbers.column
                if self.kind == 1:
                    scores[k * QUERIES + q] += numbers[there]
                elif shown[there] == 0:
                    scores[k * QUERIES + q] = -inf[Self.T]()


struct Drop[T: DType](TrivialRegisterPassable):
    """Dropout of weights, by the words of `kept_weights`."""

    var seed: UInt64
    var offset: Int
    var limit: UInt64  # the first word that keeps a weight
    var factor: Scalar[Self.T]  # of weights that are kept; 0: nothing is dropped

    def __init__(out self, plan: Table, factor: Float64):
        self.seed = UInt64(plan[8]) | (UInt64(plan[9]) << 32)
        self.offset = Int(plan[10])
        self.limit = UInt64(plan[11])
        self.factor = factor.cast[Self.T]()

    def draw(self, s: Sizes, at: Block, kept: Buffer[Self.T]):
        """kept[k, q] = 0 or `factor`. Four words are for four keys of a query."""
        comptime w = simd_width_of[Self.T]()
        var row = (at.b * s.H + at.h) * s.L + at.q0
        var blocks = ceildiv(s.S, 4)  # of words, for a row
        for j in range(0, at.lines if self.factor > 0 else 0, w):
            for k in range(0, at.seen[max(w, ROWS)](j), 4):
                var first = self.offset + (row + j) * blocks + (at.k0 + k) // 4
                var lanes = iota[DType.uint64, w]() * UInt64(blocks) + UInt64(first)
                var words = philox(lanes, self.seed)
                comptime for i in range(4):
                    var factors = words[i].ge(self.limit).select(
                        SIMD[Self.T, w](self.factor), SIMD[Self.T, w](0)
                    )
                    kept.store[w]((k + i) * QUERIES + j, factors)

    @always_inline
    def keep[w: Int](self, kept: Buffer[Self.T], i: Int) -> SIMD[Self.T, w]:
        """What weights i to i + w - 1 of a block are multiplied by."""
        return kept.load[w](i) if self.factor > 0 else SIMD[Self.T, w](1)


@always_inline
def hide[T: DType](scores: Buffer[T], at: Block, j: Int):
    """-infinity for the keys that one of the queries of vector j sees, another not."""
    comptime w = simd_width_of[T]()
    for k in range(max(0, j + 1 - at.edge), at.seen[max(w, ROWS)](j)):
        var hidden = (iota[DType.int64, w]() + Int64(j)).lt(Int64(at.edge + k))
        var x = scores.load[w](k * QUERIES + j)
        scores.store[w](k * QUERIES + j, hidden.select(SIMD[T, w](-inf[T]()), x))


def online_softmax[
    T: DType
](
    scores: Buffer[T], at: Block, top: Buffer[T], total: Buffer[T], decay: Buffer[T],
    drop: Drop[T], kept: Buffer[T],
):
    """Scores become weights; `top` and `total` go on to the keys of this block.

    top [QUERIES] is the largest score of each query so far, and total the sum of
    exp(score - top). What was summed up before counts exp(old top - new top), `decay`.
    Weights are dropped once they are summed up.
    """
    comptime w = simd_width_of[T]()
    for j in range(0, at.lines, w):
        hide(scores, at, j)
        var count = at.seen[max(w, ROWS)](j)
        var before = top.load[w](j)
        var most = before
        for k in range(count):
            var x = scores.load[w](k * QUERIES + j)
            most = x.gt(most).select(x, most)
        # A query that has seen no key yet takes away 0, not -inf, so weights are 0.
        var less = most.gt(-inf[T]()).select(most, SIMD[T, w](0))
        var sum = SIMD[T, w](0)
        for k in range(count):
            var i = k * QUERIES + j
            var weight = exp(scores.load[w](i) - less)
            scores.store[w](i, weight * drop.keep[w](kept, i))
            sum += weight
        var factor = exp(before - less)
        decay.store[w](j, factor)
        total.store[w](j, total.load[w](j).fma(factor, sum))
        top.store[w](j, most)


def find_slopes[
    T: DType
](
    weights: Buffer[T], slopes: Buffer[T], at: Block, ends: Buffer[T], below: Buffer[T],
    scale: Scalar[T], drop: Drop[T], kept: Buffer[T],
):
    """Scores become weights, and gradients of dropped weights those of scores.

        p = exp(weights - ends);  slopes = p * (slopes * kept - below) * scale
        weights = p * kept
    """
    comptime w = simd_width_of[T]()
    for j in range(0, at.lines, w):
        hide(weights, at, j)
        var end = ends.load[w](j)
        var less = below.load[w](j)
        for k in range(at.seen[max(w, ROWS)](j)):
            var i = k * QUERIES + j
            var p = exp(weights.load[w](i) - end)
            var keep = drop.keep[w](kept, i)
            slopes.store[w](i, p * (slopes.load[w](i) * keep - less) * scale)
            weights.store[w](i, p * keep)


# --------------------------------------------------------------------------- all blocks


struct Inputs[T: DType](TrivialRegisterPassable):
    """What both passes read, and where they work."""

    var query: Heads[Self.T]
    var key: Heads[Self.T]
    var value: Heads[Self.T]
    var out_: Heads[Self.T]
    var mask: Mask[Self.T]
    var logsumexp: Buffer[Self.T]  # [B, H, L]
    var sizes: Sizes
    var scale: Scalar[Self.T]
    var drop: Drop[Self.T]
    var work: Buffer[Self.T]
    var room: Int  # of a worker
    var counter: Table  # of tasks

    def __init__(out self, a: Arguments, i: Int):
        """From the arguments i on; an array's place is that of its strides, too."""
        var plan = a.buffer[DType.int64](i + 6)
        self.query = Heads[Self.T](a, i, plan)
        self.key = Heads[Self.T](a, i + 1, plan)
        self.value = Heads[Self.T](a, i + 2, plan)
        self.out_ = Heads[Self.T](a, i + 3, plan)
        self.mask = Mask[Self.T](a, i + 4, plan)
        self.logsumexp = a.buffer[Self.T](i + 5)
        self.sizes = sizes_of(plan)
        self.scale = a.number(i + 7).cast[Self.T]()
        self.drop = Drop[Self.T](plan, a.number(i + 8))
        self.work = a.buffer[Self.T](i + 9)
        self.room = a.integer(i + 10)
        self.counter = a.buffer[DType.int64](i + 11)

    @always_inline
    def fetch(self, at: Block, keys: Buffer[Self.T], values: Buffer[Self.T]):
        """Copy the block's keys and values, one row behind the other."""
        var shared = at.h // (self.sizes.H // self.sizes.K)
        var E = self.sizes.E
        var V = self.sizes.V
        var key = self.key.at(at.b, shared, at.k0)
        copy_block(key, self.key.row, keys, E, at.keys, E, 0)
        var value = self.value.at(at.b, shared, at.k0)
        copy_block(value, self.value.row, values, V, at.keys, V, 0)

    @always_inline
    def logs(self, at: Block) -> Buffer[Self.T]:
        """The block's part of logsumexp."""
        var head = at.b * self.sizes.H + at.h
        return self.logsumexp.at(head * self.sizes.L + at.q0)


@fieldwise_init
struct Attend[T: DType](Kernel):
    """# query [B, H, L, E], key [B, K, S, E], value [B, K, S, V] -> out [B, H, L, V]

        parallel for heads, blocks of queries:  for blocks of keys:
            scores = keys * queries                       `score`, `Mask`
            weights = exp(scores - the largest so far)    `online_softmax`, `Drop`
            out = out * decay + weights * values          `weigh`

    A task makes 64 rows of out. A block of weights, of keys and of values and the
    queries (112 KiB for 64 features) stay in the second-level cache, and so do all keys
    and values of a head of 1024, while its queries pass by.
    """

    var x: Inputs[Self.T]

    def run(self, worker: Int):
        var s = self.x.sizes
        var task = next_task(self.x.counter)
        while task < s.B * s.H * s.blocks:
            var head = task // s.blocks
            var b = head // s.H
            # With `causal`, the longest of a head come first.
            var i = s.blocks - 1 - task % s.blocks
            var at = Block(s, b, head - b * s.H, i)
            self.block(at, self.x.work.at(worker * self.x.room))
            task = next_task(self.x.counter)

    def block(self, mut at: Block, scores: Buffer[Self.T]):
        comptime w = simd_width_of[Self.T]()
        var s = self.x.sizes
        var kept = scores.at(ROOM)
        var top = kept.at(ROOM)
        var total = top.at(QUERIES)
        var decay = total.at(QUERIES)
        var columns = decay.at(QUERIES)
        var keys = columns.at(QUERIES * s.E)
        var values = keys.at((KEYS + ROWS) * s.E)
        var query = self.x.query.at(at.b, at.h, at.q0)
        var out_ = self.x.out_.at(at.b, at.h, at.q0)
        lay_out(query, self.x.query.row, at.lines, s.E, self.x.scale, columns)
        fill(top, QUERIES, -inf[Self.T]())
        fill(total, QUERIES, 0)
        for k0 in range(0, at.last(s), KEYS):
            at.move(s, k0)
            self.x.fetch(at, keys, values)
            score(keys, s.E, columns, at, scores)
            self.x.mask.apply(at, scores)
            self.x.drop.draw(s, at, kept)
            online_softmax(scores, at, top, total, decay, self.x.drop, kept)
            weigh(scores, values, s.V, at, out_, self.x.out_.row, decay)
        for j in range(0, at.lines, w):
            var sum = total.load[w](j)
            store_part(self.x.logs(at), j, at.lines, top.load[w](j) + log(sum))
            total.store[w](j, sum.eq(0).select(SIMD[Self.T, w](0), 1 / sum))
        for q in range(at.lines):
            var row = out_.at(q * self.x.out_.row)
            for e in range(0, s.V, w):
                store_part(row, e, s.V, load_part[w](row, e, s.V, 0) * total[q])


def run_attend[T: DType](team: Object, a: Arguments):
    parallel_for(Team(team), a.integer(12), Attend(Inputs[T](a, 0)))


@export
def attend(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(query, key, value, out, mask, logsumexp, plan, scale, factor of weights that are
    kept, work, room of a worker, counter, workers)

    The plan is `Sizes`, what `Drop` needs, and what `Heads` needs for each array."""
    return by_float[run_attend](team, arguments, 0)


@fieldwise_init
struct AttendBack[T: DType](Kernel):
    """# grad and out [B, H, L, V] -> dq [B, H, L, E], and for each part dk [B, K, S, E]
    # and dv [B, K, S, V]

        parallel for heads of keys, parts:  for blocks of queries, blocks of keys:
            weights = exp(keys * queries - logsumexp)     as in the forward pass
            slopes = weights * (values * grad - rowsum(grad * out)) * scale
            dv += weights * grad;  dk += slopes * queries;  dq += slopes * keys

    A task makes all that one part of the queries of a head of keys (and of its group of
    heads) gives to the keys; parts are added up later. So no weight is made twice, and
    no sum waits for another thread.
    """

    var dq: Heads[Self.T]
    var dk: Heads[Self.T]
    var dv: Heads[Self.T]
    var grad: Heads[Self.T]
    var x: Inputs[Self.T]
    var parts: Int

    def run(self, worker: Int):
        var s = self.x.sizes
        var group = s.H // s.K
        var task = next_task(self.x.counter)
        while task < s.B * s.K * self.parts:
            var head = task // self.parts
            var part = task - head * self.parts
            var b = head // s.K
            var shared = head - b * s.K
            var dk = self.dk.at(part * s.B + b, shared)
            var dv = self.dv.at(part * s.B + b, shared)
            for k in range(s.S):
                fill(dk.at(k * self.dk.row), s.E, 0)
                fill(dv.at(k * self.dv.row), s.V, 0)
            for unit in range(part, group * s.blocks, self.parts):
                var h = shared * group + unit // s.blocks
                var at = Block(s, b, h, unit % s.blocks)
                self.block(at, dk, dv, self.x.work.at(worker * self.x.room))
            task = next_task(self.x.counter)

    def block(
        self, mut at: Block, dk: Buffer[Self.T], dv: Buffer[Self.T],
        weights: Buffer[Self.T],
    ):
        var s = self.x.sizes
        var slopes = weights.at(ROOM)
        var kept = slopes.at(ROOM)
        var ends = kept.at(ROOM)
        var below = ends.at(QUERIES)
        var ones = below.at(QUERIES)
        var columns = ones.at(QUERIES)
        var grad_columns = columns.at(QUERIES * s.E)
        var rows = grad_columns.at(QUERIES * s.V)
        var grad_rows = rows.at(QUERIES * s.E)
        var keys = grad_rows.at(QUERIES * s.V)
        var values = keys.at((KEYS + ROWS) * s.E)
        var query = self.x.query.at(at.b, at.h, at.q0)
        var grad = self.grad.at(at.b, at.h, at.q0)
        var dq = self.dq.at(at.b, at.h, at.q0)
        lay_out(query, self.x.query.row, at.lines, s.E, self.x.scale, columns)
        lay_out(grad, self.grad.row, at.lines, s.V, 1, grad_columns)
        copy_block(query, self.x.query.row, rows, s.E, at.lines, s.E, 0)
        copy_block(grad, self.grad.row, grad_rows, s.V, at.lines, s.V, 0)
        self.prepare(at, grad_rows, ends, below)
        fill(ones, QUERIES, 1)
        for k0 in range(0, at.last(s), KEYS):
            at.move(s, k0)
            self.x.fetch(at, keys, values)
            score(keys, s.E, columns, at, weights)
            score(values, s.V, grad_columns, at, slopes)
            self.x.mask.apply(at, weights)
            self.x.drop.draw(s, at, kept)
            find_slopes(
                weights, slopes, at, ends, below, self.x.scale, self.x.drop, kept
            )
            var to = dv.at(k0 * self.dv.row)
            weigh_back(weights, grad_rows, s.V, at, to, self.dv.row, ones)
            to = dk.at(k0 * self.dk.row)
            weigh_back(slopes, rows, s.E, at, to, self.dk.row, ones)
            weigh(slopes, keys, s.E, at, dq, self.dq.row, ones)

    def prepare(
        self, at: Block, grad: Buffer[Self.T], ends: Buffer[Self.T],
        below: Buffer[Self.T],
    ):
        """ends = logsumexp, 0 where a query sees no key: its weights are then 0, too;
        below = rowsum(grad * out)"""
        comptime w = simd_width_of[Self.T]()
        var out_ = self.x.out_.at(at.b, at.h, at.q0)
        var V = self.x.sizes.V
        for q in range(at.lines):
            var end = self.x.logs(at)[q]
            ends[q] = end if end != -inf[Self.T]() else 0
            var sum = SIMD[Self.T, w](0)
            for e in range(0, V, w):
                var left = load_part[w](grad.at(q * V), e, V, 0)
                sum += left * load_part[w](out_.at(q * self.x.out_.row), e, V, 0)
            below[q] = sum.reduce_add()


def run_attend_back[T: DType](team: Object, a: Arguments):
    var plan = a.buffer[DType.int64](10)
    var kernel = AttendBack[T](
        Heads[T](a, 0, plan), Heads[T](a, 1, plan), Heads[T](a, 2, plan),
        Heads[T](a, 3, plan), Inputs[T](a, 4), a.integer(17),
    )
    parallel_for(Team(team), a.integer(16), kernel)


@export
def attend_backward(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(dq, dk, dv, grad), the arguments of `attend`, and the number of parts"""
    return by_float[run_attend_back](team, arguments, 0)
