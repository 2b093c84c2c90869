"""Matrix products, from three plain loops to nearly the limit of the machine.

With this file one can read, call and time each step on the way there:

    matmul_naive        the definition, one sum for each output
    matmul_loop_order   the same loops in the order in which memory lies
    matmul_vectorized   a vector of outputs at a time
    matmul_parallel     rows shared among the threads
    matmul_tiled        tiles of outputs that stay in registers
    matmul_packed       the same, fed from packed panels that stay in the caches

and what the backend needs besides: products of integers and of very small matrices
(`matmul_rows`).

Mojo's compiler makes vector instructions where the program says so (`load[w]`) and
nowhere else, so each rung shows what its idea alone gains. `fast_ops/matmul.py` has the
same ladder in Numba, whose compiler vectorizes loops by itself.
"""

from std.math import ceildiv
from std.sys import simd_width_of

from bridge import (
    Arguments, Buffer, Object, by_float, by_number, done, fail, integer, load_some,
    store_some,
)
from lines import woven
from parallel import Kernel, Team, parallel_for

comptime f32 = DType.float32
comptime f64 = DType.float64

comptime WIDE = simd_width_of[f32]() >= 16  # AVX-512: 32 registers of 16 float32
comptime ROWS = 8  # rows of a tile, and lines of a panel of a
comptime VECTORS = 2 if WIDE else 1  # vectors in a row of a tile of `matmul_packed`
comptime TILED_ROWS = 4  # rows of a tile of `matmul_tiled`
comptime TILED_VECTORS = 2
comptime DEPTH = 256  # steps of k in a row: a panel of b is then 32 KiB
comptime CHUNK_LINES = 64  # what one task packs: so many lines
comptime CHUNK_STEPS = 256  # of so many steps


@fieldwise_init
struct Matrices[T: DType](TrivialRegisterPassable):
    """Contiguous matrices: a [M, K], b [K, N] -> z [M, N]."""

    var a: Buffer[Self.T]
    var b: Buffer[Self.T]
    var z: Buffer[Self.T]
    var M: Int
    var N: Int
    var K: Int

    @always_inline
    def __init__(out self, arguments: Arguments):
        """From the arguments (a, b, out, M, N, K)."""
        self.a = arguments.buffer[Self.T](0)
        self.b = arguments.buffer[Self.T](1)
        self.z = arguments.buffer[Self.T](2)
        self.M = arguments.integer(3)
        self.N = arguments.integer(4)
        self.K = arguments.integer(5)


# ------------------------------------------------------------- the ladder, rung by rung


def naive[T: DType](p: Matrices[T]) raises:
    """The definition.

    # a [M, K] @ b [K, N] -> z [M, N]

        for m, n, k:  z[m, n] += a[m, k] * b[k, n]

    One thread makes all outputs, each as one sum in a register. The innermost loop
    walks down a column of b: every step touches another cache line, and uses 4 of its
    64 bytes.
    """
    # BEGIN SOLUTION a9.1
    for m in range(p.M):
        for n in range(p.N):
            var total = Scalar[T](0)
            for k in range(p.K):
                total += p.a[m * p.K + k] * p.b[k * p.N + n]
            p.z[m * p.N + n] = total
    # END SOLUTION a9.1


def loop_order[T: DType](p: Matrices[T]) raises:
    """The loops of `naive` in the order m, k, n.

        for m, k, n:  z[m, n] += a[m, k] * b[k, n]

    The innermost loop runs along rows of b and z, so all of a cache line is used, and
    the row of z stays in the first-level cache while k runs.
    """
    for m in range(p.M):
        var row = p.z.at(m * p.N)
        for n in range(p.N):
            row[n] = 0
        for k in range(p.K):
            var left = p.a[m * p.K + k]
            var right = p.b.at(k * p.N)
            for n in range(p.N):
                row[n] += left * right[n]


def vectorized_row[T: DType](p: Matrices[T], m: Int) raises:
    """Row m of z: `w` outputs at a time, with one instruction.

        for k, vectors n:  z[m, n .. n + w] += a[m, k] * b[k, n .. n + w]

    A vector register holds w = 16 float32 numbers with AVX-512, 8 with AVX2, 4 with
    NEON. One number of a is multiplied by w numbers of b and added to w sums. What is
    left of a row, fewer than w numbers, is done one by one.
    """
    # BEGIN SOLUTION a9.2
    comptime w = simd_width_of[T]()
    var row = p.z.at(m * p.N)
    var whole = p.N // w * w
    for n in range(p.N):
        row[n] = 0
    for k in range(p.K):
        var left = p.a[m * p.K + k]
        var right = p.b.at(k * p.N)
        for n in range(0, whole, w):
            row.store[w](n, right.load[w](n).fma(SIMD[T, w](left), row.load[w](n)))
        for n in range(whole, p.N):
            row[n] += left * right[n]
    # END SOLUTION a9.2


def vectorized[T: DType](p: Matrices[T]) raises:
    """`vectorized_row` for all rows, by one thread."""
    for m in range(p.M):
        vectorized_row(p, m)


@fieldwise_init
struct ParallelRows[T: DType](Kernel):
    """`vectorized_row`, with the rows of z shared among the threads.

        parallel for blocks of m:  for m, k, n:  z[m, n] += a[m, k] * b[k, n]

    A task is `per_task` rows. It writes to no row of another task, so nothing has to be
    locked; each thread still reads all of b for each of its rows.
    """

    var p: Matrices[Self.T]
    var per_task: Int

    def run(self, task: Int) raises:
        # BEGIN SOLUTION a9.3
        var first = task * self.per_task
        for m in range(first, min(first + self.per_task, self.p.M)):
            vectorized_row(self.p, m)
        # END SOLUTION a9.3


@fieldwise_init
struct Tiled[T: DType](Kernel):
    """Tiles of 4 rows and 2 vectors of columns, whose sums stay in registers.

        parallel for blocks of 4 rows:  for tiles of columns:
            4 x 2 vectors = 0
            for k:  load 2 vectors of b, 4 numbers of a;  8 multiply-adds
            store the tile

    `vectorized_row` loads and stores a vector of z for each multiply-add. Here the sums
    are in 8 registers while k runs, and each vector of b is used for 4 rows: 8
    multiply-adds for 6 loads and no store.
    """

    var p: Matrices[Self.T]

    def run(self, task: Int) raises:
        # BEGIN SOLUTION a9.4
        comptime w = simd_width_of[Self.T]()
        comptime columns = TILED_VECTORS * w
        var m = task * TILED_ROWS
        var whole = self.p.N // columns * columns
        if m + TILED_ROWS <= self.p.M:
            for n in range(0, whole, columns):
                self.tile[TILED_ROWS, TILED_VECTORS, w](m, n)
            for n in range(whole, self.p.N):
                self.tile[TILED_ROWS, 1, 1](m, n)
            return
        for i in range(m, self.p.M):
            for n in range(0, whole, columns):
                self.tile[1, TILED_VECTORS, w](i, n)
            for n in range(whole, self.p.N):
                self.tile[1, 1, 1](i, n)
        # END SOLUTION a9.4

    @always_inline
    def tile[rows: Int, vectors: Int, w: Int](self, m: Int, n: Int) raises:
        """`rows` rows from m on, `vectors` vectors of `w` columns from n on."""
        # BEGIN SOLUTION a9.4
        var sums = Array[SIMD[Self.T, w], rows * vectors](fill=SIMD[Self.T, w](0))
        for k in range(self.p.K):
            var right = self.p.b.at(k * self.p.N + n)
            comptime for i in range(rows):
                var left = SIMD[Self.T, w](self.p.a[(m + i) * self.p.K + k])
                comptime for j in range(vectors):
                    comptime at = i * vectors + j
                    sums[at] = right.load[w](j * w).fma(left, sums[at])
        comptime for i in range(rows):
            comptime for j in range(vectors):
                var z = self.p.z.at((m + i) * self.p.N + n)
                z.store[w](j * w, sums[i * vectors + j])
        # END SOLUTION a9.4


# -------------------------------------------------------------------- the last rung


@fieldwise_init
struct Operand[T: DType](TrivialRegisterPassable):
    """A batch of matrices as lines of steps in k: rows of a, or columns of b."""

    var data: Buffer[Self.T]
    var starts: Buffer[DType.int64]  # of each matrix
    var across: Int  # from line to line
    var step: Int  # from k to k + 1
    var lines: Int

    @always_inline
    def matrix(self, i: Int) -> Buffer[Self.T]:
        return self.data.at(Int(self.starts[i]))


@fieldwise_init
struct Pack[T: DType, wide: Int](Kernel):
    """Lay a matrix out in the order in which the tiles read it.

    # lines [lines, K] -> panels [lines / wide, K, wide]

    A panel holds `wide` lines, missing ones as zeros. A task is CHUNK_LINES lines of
    CHUNK_STEPS steps. Where the lines lie beside each other a step is a run of memory;
    where the steps do, eight lines are woven together in registers.
    """

    var x: Operand[Self.T]
    var work: Buffer[Self.T]
    var part: Int  # elements of `work` for each matrix
    var first: Int  # matrix of the batch
    var K: Int
    var tasks: Int  # for each matrix

    def run(self, task: Int):
        var which = task // self.tasks
        var chunk = task - which * self.tasks
        var k_chunks = ceildiv(self.K, CHUNK_STEPS)
        var group = chunk // k_chunks
        var k = (chunk - group * k_chunks) * CHUNK_STEPS
        var last = min(k + CHUNK_STEPS, self.K)
        var x = self.x.matrix(self.first + which)
        var z = self.work.at(which * self.part)
        var end = min((group + 1) * CHUNK_LINES, self.x.lines)
        for line in range(group * CHUNK_LINES, end, Self.wide):
            self.panel(x.at(line * self.x.across), z.at(line * self.K), line, k, last)

    @always_inline
    def panel(
        self, x: Buffer[Self.T], z: Buffer[Self.T], line: Int, k: Int, last: Int
    ):
        """Steps k to last of the panel whose first line is `x`."""
        if line + Self.wide > self.x.lines:
            self.slowly(x, z, self.x.lines - line, k, last)
        elif self.x.across == 1:
            for i in range(k, last):
                z.store[Self.wide](
                    i * Self.wide, x.load[Self.wide](i * self.x.step)
                )
        elif self.x.step == 1:
            self.weave(x, z, k, last)
        else:
            self.slowly(x, z, Self.wide, k, last)

    @always_inline
    def weave(self, x: Buffer[Self.T], z: Buffer[Self.T], k: Int, last: Int):
        comptime w = simd_width_of[Self.T]()
        var whole = k + (last - k) // w * w
        for i in range(k, whole, w):
            comptime for g in range(0, Self.wide, 8):
                var at = x.at(g * self.x.across + i)
                var steps = woven[Self.T, w](at, self.x.across)
                comptime for step in range(w):
                    z.store[8](
                        (i + step) * Self.wide + g, steps.slice[8, offset=8 * step]()
                    )
        self.slowly(x, z, Self.wide, whole, last)

    def slowly(
        self, x: Buffer[Self.T], z: Buffer[Self.T], lines: Int, k: Int, last: Int
    ):
        """One element after the other, and zeros for the lines that are missing."""
        for i in range(k, last):
            for line in range(Self.wide):
                z[i * Self.wide + line] = (
                    x[line * self.x.across + i * self.x.step] if line < lines else 0
                )


@fieldwise_init
struct Multiply[T: DType](Kernel):
    """Blocks of z from packed panels, tile by tile.

    # panels of a [M / 8, K, 8], panels of b [N / 32, K, 32] -> z [M, N]

        parallel for blocks of up to 240 rows and up to 8 panels of columns:
            for blocks of 256 k, panels of b, panels of a:
                8 x 32 outputs += a's panel * b's panel, in registers

    A tile is 16 sums of 16 lanes. A step of k loads two vectors of b and 8 numbers of
    a, and makes 16 multiply-adds. The block of a panel of b (32 KiB) stays in the
    first-level cache while the panels of a pass by; those (8 KiB each) stay in the
    second-level cache. `matmul_tiled` finds b in memory again for every 4 rows.

    Source of the idea: Goto and van de Geijn, "Anatomy of high-performance matrix
    multiplication", 2008.
    """

    var a: Buffer[Self.T]
    var b: Buffer[Self.T]
    var z: Buffer[Self.T]
    var a_part: Int  # elements of all panels of one matrix
    var b_part: Int
    var M: Int
    var N: Int
    var K: Int
    var rows: Int  # of z in a task
    var columns: Int

    comptime w = simd_width_of[Self.T]()
    comptime wide = VECTORS * Self.w

    @always_inline
    def tasks(self) -> Int:
        """For each matrix."""
        return ceildiv(self.M, self.rows) * ceildiv(self.N, self.columns)

    def run(self, task: Int):
        var which = task // self.tasks()
        var block = task - which * self.tasks()
        var down = ceildiv(self.M, self.rows)
        var n = block // down * self.columns
        var m = (block - block // down * down) * self.rows
        var a = self.a.at(which * self.a_part)
        var b = self.b.at(which * self.b_part)
        var z = self.z.at(which * self.M * self.N)
        for k in range(0, self.K, DEPTH):
            for j in range(n, min(n + self.columns, self.N), Self.wide):
                var right = b.at(j * self.K + k * Self.wide)
                for i in range(m, min(m + self.rows, self.M), ROWS):
                    var left = a.at(i * self.K + k * ROWS)
                    self.tile(left, right, z, i, j, k)

    @always_inline
    def tile(
        self, a: Buffer[Self.T], b: Buffer[Self.T], z: Buffer[Self.T],
        i: Int, j: Int, k: Int,
    ):
        """Add steps k to k + DEPTH of a tile, from panels that begin there."""
        comptime V = SIMD[Self.T, Self.w]
        var sums = Array[V, ROWS * VECTORS](fill=V(0))
        for step in range(min(DEPTH, self.K - k)):
            comptime for r in range(ROWS):
                var left = V(a[step * ROWS + r])
                comptime for v in range(VECTORS):
                    comptime at = r * VECTORS + v
                    var right = b.load[Self.w](step * Self.wide + v * Self.w)
                    sums[at] = right.fma(left, sums[at])
        var out_ = z.at(i * self.N + j)
        if i + ROWS <= self.M and j + Self.wide <= self.N:
            comptime for r in range(ROWS):
                comptime for v in range(VECTORS):
                    var at = r * self.N + v * Self.w
                    var sum = sums[r * VECTORS + v]
                    out_.store[Self.w](
                        at, sum if k == 0 else sum + out_.load[Self.w](at)
                    )
            return
        self.edge(sums, out_, i, j, k)

    @always_inline
    def edge(
        self, sums: Array[SIMD[Self.T, Self.w], ROWS * VECTORS], z: Buffer[Self.T],
        i: Int, j: Int, k: Int,
    ):
        """Write the part of a tile that lies inside z."""
        comptime for r in range(ROWS):
            if i + r < self.M:
                comptime for v in range(VECTORS):
                    var n = self.N - j - v * Self.w
                    var at = z.at(r * self.N + v * Self.w)
                    var sum = sums[r * VECTORS + v]
                    if k > 0:
                        sum += load_some[Self.T, Self.w](at, 0, n)
                    store_some[Self.T, Self.w](at, 0, n, sum)


# ---------------------------------------------------------------- integers, tiny ones


@fieldwise_init
struct AnyRows[T: DType](Kernel):
    """`vectorized_row` for any strides and batches; a task is `per_task` rows.

    # a [B, M, K] @ b [B, K, N] -> z [B, M, N]
    """

    var a: Operand[Self.T]
    var b: Operand[Self.T]
    var z: Buffer[Self.T]
    var rows: Int  # B * M
    var K: Int
    var per_task: Int

    def run(self, task: Int):
        var first = task * self.per_task
        for row in range(first, min(first + self.per_task, self.rows)):
            self.row(row)

    @always_inline
    def row(self, row: Int):
        var which = row // self.a.lines
        var m = row - which * self.a.lines
        var a = self.a.matrix(which).at(m * self.a.across)
        var b = self.b.matrix(which)
        var z = self.z.at(row * self.b.lines)
        for n in range(self.b.lines):
            z[n] = 0
        for k in range(self.K):
            var left = a[k * self.a.step]
            var right = b.at(k * self.b.step)
            if self.b.across == 1:
                self.add(z, left, right)
            else:
                for n in range(self.b.lines):
                    z[n] += left * right[n * self.b.across]

    @always_inline
    def add(self, z: Buffer[Self.T], left: Scalar[Self.T], right: Buffer[Self.T]):
        """Add left * right[n] to z[n], for all n."""
        comptime w = simd_width_of[Self.T]()
        var whole = self.b.lines // w * w
        for n in range(0, whole, w):
            z.store[w](n, right.load[w](n) * left + z.load[w](n))
        for n in range(whole, self.b.lines):
            z[n] += left * right[n]


# ------------------------------------------------------------------- called from Python


def rung[T: DType, name: StaticString](team: Object, arguments: Arguments) raises:
    var p = Matrices[T](arguments)
    comptime if name == "naive":
        naive(p)
    elif name == "loop_order":
        loop_order(p)
    elif name == "vectorized":
        vectorized(p)
    elif name == "parallel":
        var per_task = max(1, min(16, ceildiv(p.M, 16)))
        parallel_for(Team(team), ceildiv(p.M, per_task), ParallelRows(p, per_task))
    else:
        parallel_for(Team(team), ceildiv(p.M, TILED_ROWS), Tiled(p))


def run_rung[name: StaticString](team: Object, arguments: Arguments) -> Object:
    """(a, b, out, M, N, K, type): contiguous matrices of float32 or float64."""
    try:
        if arguments.text(6) == "float32":
            rung[f32, name](team, arguments)
        else:
            rung[f64, name](team, arguments)
    except error:
        fail(error)
    return done()


@export
def matmul_naive(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """See `run_rung`."""
    return run_rung["naive"](team, arguments)


@export
def matmul_loop_order(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """See `run_rung`."""
    return run_rung["loop_order"](team, arguments)


@export
def matmul_vectorized(
    team: Object, arguments: Arguments, count: Int
) abi("C") -> Object:
    """See `run_rung`."""
    return run_rung["vectorized"](team, arguments)


@export
def matmul_parallel(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """See `run_rung`."""
    return run_rung["parallel"](team, arguments)


@export
def matmul_tiled(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """See `run_rung`."""
    return run_rung["tiled"](team, arguments)


@always_inline
def operand[T: DType](
    data: Arguments, i: Int, plan: Buffer[DType.int64], starts: Int, at: Int
) -> Operand[T]:
    """Argument i with its offset, and from plan[at] on: across, step, lines."""
    return Operand[T](
        data.buffer[T](i).at(data.integer(i + 1)),
        data.buffer[DType.int64](starts),
        Int(plan[at]),
        Int(plan[at + 1]),
        Int(plan[at + 2]),
    )


def packed[T: DType](team: Object, arguments: Arguments):
    """Pack as many products as fit into `work`, multiply them, and so on."""
    var plan = arguments.buffer[DType.int64](8)
    var a = operand[T](arguments, 0, plan, 6, 0)
    var b = operand[T](arguments, 2, plan, 7, 3)
    var K = Int(plan[6])
    var batch = Int(plan[7])
    var together = Int(plan[8])
    var serial = Int(plan[10]) != 0
    comptime wide = Multiply[T].wide
    var a_part = ceildiv(a.lines, ROWS) * ROWS * K
    var b_part = ceildiv(b.lines, wide) * wide * K
    var a_work = arguments.buffer[T](5)
    var b_work = a_work.at(together * a_part)
    var z = arguments.buffer[T](4)
    var k_chunks = ceildiv(K, CHUNK_STEPS)
    var a_tasks = ceildiv(a.lines, CHUNK_LINES) * k_chunks
    var b_tasks = ceildiv(b.lines, CHUNK_LINES) * k_chunks
    for first in range(0, batch, together):
        var count = min(together, batch - first)
        var pack_a = Pack[T, ROWS](a, a_work, a_part, first, K, a_tasks)
        var pack_b = Pack[T, wide](b, b_work, b_part, first, K, b_tasks)
        var multiply = Multiply[T](
            a_work, b_work, z.at(first * a.lines * b.lines), a_part, b_part,
            a.lines, b.lines, K, Int(plan[11]), Int(plan[9]),
        )
        parallel_for(Team(team), count * a_tasks, pack_a, serial)
        parallel_for(Team(team), count * b_tasks, pack_b, serial)
        parallel_for(Team(team), count * multiply.tasks(), multiply, serial)


@export
def matmul_packed(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(a, offset, b, offset, out, work, starts of a, starts of b, plan).

    The plan is an array of int64: across, step and lines of a and of b, then K, how
    many products there are, how many fit into work, columns of a task, serial, rows of
    a task.
    """
    return by_float[packed](team, arguments, 0)


def any_rows[T: DType](team: Object, arguments: Arguments):
    var plan = arguments.buffer[DType.int64](8)
    var a = operand[T](arguments, 0, plan, 6, 0)
    var b = operand[T](arguments, 2, plan, 7, 3)
    var rows = a.lines * Int(plan[7])
    var per_task = max(1, ceildiv(rows, 64))
    var kernel = AnyRows(a, b, arguments.buffer[T](4), rows, Int(plan[6]), per_task)
    parallel_for(Team(team), ceildiv(rows, per_task), kernel, Int(plan[10]) != 0)


@export
def matmul_rows(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """The arguments of `matmul_packed`, of which `work` is not used."""
    return by_number[any_rows](team, arguments, 0)


@export
def tile_columns(team: Object, arguments: Arguments, count: Int) abi("C") -> Object:
    """(type,) -> the columns of a tile of `matmul_packed`."""
    if arguments.text(0) == "float32":
        return integer(Multiply[f32].wide)
    return integer(Multiply[f64].wide)
