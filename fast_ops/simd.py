"""Vector instructions for the innermost loops of products and convolutions.

With this file a kernel can call `tile_fma`, which multiplies a few rows of one matrix
by a few columns of another and keeps the whole result in vector registers, and
`tile_dot`, which does the same for sums along the contiguous direction. `TILE` and
`DOT` say how large the tiles are on this machine.

A compiler vectorizes the last of three nested loops and reloads the output at each
step. The tiles here hold their sums in registers from the first step to the last: with
AVX-512, 8 rows of 32 float32 columns are 16 sums of 16 lanes. A step loads two vectors
of b, and each of the 8 numbers of a is multiplied into both: 16 multiply-adds for 10
loads, so the arithmetic is the limit and not the cache.

Numba has no vector types, so the two functions are written as LLVM instructions
(`numba.extending.intrinsic`); LLVM turns them into the machine's own.

Source of the idea: Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication", 2008; Van Zee and van de Geijn, "BLIS", 2015.
"""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.core.errors import TypingError
from numba.extending import intrinsic


class Tile(NamedTuple):
    """The size of a tile: `rows` times `vectors` registers."""

    rows: int
    vectors: int


def _vector_bytes() -> int:
    """How many bytes a vector register of this machine holds: 64, 32 or 16."""
    if config.CPU_NAME not in (None, "", "host"):
        return 16
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx2") and features.get("fma") else 16


VECTOR_BYTES = _vector_bytes()
LANES = VECTOR_BYTES // 4  # of float32; float64 has half as many
# Sums plus operands must fit into the registers: 32 with AVX-512 and on ARM64, else 16.
MANY = VECTOR_BYTES == 64 or platform.machine() in ("arm64", "aarch64")
TILE = Tile(8 if MANY else 6 if VECTOR_BYTES == 32 else 4, 2)
GROUP = 8  # lines that `transpose_lines` takes at a time
DOT = Tile(4, 6) if MANY else Tile(2, 4)
DOT_ROOM = -(-DOT.rows * DOT.vectors // LANES) * LANES


class _Emitter:
    """Builds vector code for arrays of one element type."""

    def __init__(
        self, context: Any, builder: Any, array: types.Array, lanes: int = 0
    ) -> None:
        self.context, self.builder, self.array = context, builder, array
        self.scalar = context.get_value_type(array.dtype)
        self.lanes = lanes or VECTOR_BYTES // (array.dtype.bitwidth // 8)
        self.bytes = array.dtype.bitwidth // 8
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)

    def data(self, array_type: types.Array, array: Any, at: Any) -> Any:
        """A pointer to element `at` of an array."""
        view = self.context.make_array(array_type)(self.context, self.builder, array)
        return self.builder.gep(view.data, [at])

    def load(self, pointer: Any, at: Any) -> Any:
        """The vector whose first lane is pointer[at]."""
        place = self.builder.gep(pointer, [at])
        wide = self.builder.bitcast(place, self.vector.as_pointer())
        return self.builder.load(wide, align=self.bytes)

    def first_lanes(self, count: Any, at: int) -> Any:
        """A mask of the lanes whose number, counted from `at`, is below `count`."""
        kind = ir.VectorType(ir.IntType(64), self.lanes)
        numbers = ir.Constant(kind, [at + lane for lane in range(self.lanes)])
        return self.builder.icmp_signed("<", numbers, self.spread(count, kind))

    def select_mask(self, mask: Any, condition: Any) -> Any:
        """`mask` where the one bit `condition` is set, else no lane at all."""
        none = ir.Constant(mask.type, [0] * self.lanes)
        return self.builder.select(condition, mask, none)

    def load_masked(self, pointer: Any, at: Any, mask: Any) -> Any:
        """As `load`, but lanes outside the mask are 0 and are not touched."""
        place = self.builder.gep(pointer, [at])
        wide = self.builder.bitcast(place, self.vector.as_pointer())
        kind = ir.FunctionType(
            self.vector, [wide.type, ir.IntType(32), mask.type, self.vector]
        )
        name = f"llvm.masked.load.v{self.lanes}f{self.bytes * 8}.p0"
        fn = cgutils.get_or_insert_function(self.builder.module, kind, name)
        align = ir.Constant(ir.IntType(32), self.bytes)
        return self.builder.call(fn, [wide, align, mask, self.zero])

    def store_masked(self, value: Any, pointer: Any, at: Any, mask: Any) -> None:
        """Write the lanes in the mask to pointer[at] and the elements after it."""
        place = self.builder.gep(pointer, [at])
        wide = self.builder.bitcast(place, self.vector.as_pointer())
        kind = ir.FunctionType(
            ir.VoidType(), [self.vector, wide.type, ir.IntType(32), mask.type]
        )
        name = f"llvm.masked.store.v{self.lanes}f{self.bytes * 8}.p0"
        fn = cgutils.get_or_insert_function(self.builder.module, kind, name)
        align = ir.Constant(ir.IntType(32), self.bytes)
        self.builder.call(fn, [value, wide, align, mask])

    def spread(self, value: Any, kind: Any) -> Any:
        """A vector of type `kind` with `value` in all lanes."""
        undefined = ir.Constant(kind, ir.Undefined)
        first = ir.Constant(ir.IntType(32), 0)
        one = self.builder.insert_element(undefined, value, first)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(one, undefined, lanes)

    def lanes_from(self, start: Any, at: Any) -> Any:
        """A mask of the lanes whose number, counted from `at`, is not below `start`."""
        kind = ir.VectorType(ir.IntType(64), self.lanes)
        numbers = ir.Constant(kind, list(range(self.lanes)))
        first = self.spread(self.builder.sub(start, at), kind)
        return self.builder.icmp_signed(">=", numbers, first)

    def splat(self, value: Any) -> Any:
        """A vector with the number `value` in all lanes."""
        return self.spread(value, self.vector)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z in each lane, in one rounding where the machine can."""
        name = f"llvm.fmuladd.v{self.lanes}f{self.bytes * 8}"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        fn = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(fn, [x, y, z])

    def interleave(self, x: Any, y: Any) -> tuple[Any, Any]:
        """x0 y0 x1 y1 ... as two vectors."""
        kind = ir.VectorType(ir.IntType(32), self.lanes)
        order = [lane // 2 + lane % 2 * self.lanes for lane in range(2 * self.lanes)]
        low = ir.Constant(kind, order[: self.lanes])
        high = ir.Constant(kind, order[self.lanes :])
        shuffle = self.builder.shuffle_vector
        return shuffle(x, y, low), shuffle(x, y, high)

    def store_part(
        self, vectors: list[Any], first: int, pointer: Any, at: Any, count: Any
    ) -> None:
        """Write GROUP elements, from number `first` of all `vectors`, if i < count."""
        size = min(GROUP, self.lanes)
        kind = ir.VectorType(ir.IntType(32), size)
        for i in range(0, GROUP, size):
            vector, lane = divmod(first + i, self.lanes)
            take = ir.Constant(kind, list(range(lane, lane + size)))
            part = self.builder.shuffle_vector(vectors[vector], vectors[vector], take)
            narrow = _Emitter(self.context, self.builder, self.array, size)
            mask = narrow.first_lanes(count, i)
            place = self.builder.add(at, self.index(i))
            narrow.store_masked(part, pointer, place, mask)

    def totals(self, vectors: list[Any]) -> list[Any]:
        """The sums of the lanes of each vector, in vectors: a tree for all at once.

        Each round adds the halves of the groups of two vectors, and puts the results
        into one; after log2(lanes) rounds each group is one number.
        """
        missing = -len(vectors) % self.lanes
        vectors = [*vectors, *[self.zero] * missing]
        kind = ir.VectorType(ir.IntType(32), self.lanes)
        group = self.lanes
        while group > 1:
            group //= 2
            numbers = range(2 * self.lanes)
            low = ir.Constant(kind, [n for n in numbers if n // group % 2 == 0])
            high = ir.Constant(kind, [n for n in numbers if n // group % 2 == 1])
            vectors = [
                self.builder.fadd(
                    self.builder.shuffle_vector(x, y, low),
                    self.builder.shuffle_vector(x, y, high),
                )
                for x, y in zip(vectors[::2], vectors[1::2])
            ]
        return vectors

    def store(self, value: Any, pointer: Any, at: Any) -> None:
        """Write a vector to pointer[at] and the elements after it."""
        place = self.builder.gep(pointer, [at])
        wide = self.builder.bitcast(place, self.vector.as_pointer())
        self.builder.store(value, wide, align=self.bytes)

    def index(self, value: int) -> Any:
        """An integer constant for offsets."""
        return ir.Constant(ir.IntType(64), value)


def _loop(builder: Any, count: Any, starts: list[Any], body: Any) -> list[Any]:
    """`for i in range(count): sums = body(i, sums)`, with the sums in registers."""
    before = builder.block
    head = builder.append_basic_block("steps")
    after = builder.append_basic_block("steps.end")
    zero = ir.Constant(count.type, 0)
    some = builder.icmp_signed(">", count, zero)
    builder.cbranch(some, head, after)
    builder.position_at_end(head)
    i = builder.phi(count.type)
    i.add_incoming(zero, before)
    sums = []
    for start in starts:
        phi = builder.phi(start.type)
        phi.add_incoming(start, before)
        sums.append(phi)
    made = body(i, sums)
    following = builder.add(i, ir.Constant(count.type, 1))
    i.add_incoming(following, builder.block)
    for phi, value in zip(sums, made):
        phi.add_incoming(value, builder.block)
    again = builder.icmp_signed("<", following, count)
    last = builder.block
    builder.cbranch(again, head, after)
    builder.position_at_end(after)
    results = []
    for start, value in zip(starts, made):
        phi = builder.phi(start.type)
        phi.add_incoming(start, before)
        phi.add_incoming(value, last)
        results.append(phi)
    return results


def _check(name: str, arrays: tuple[Any, ...]) -> None:
    for array in arrays:
        if not (
            isinstance(array, types.Array) and isinstance(array.dtype, types.Float)
        ):
            raise TypingError(f"{name}: expected arrays of floats, got {array}")


@intrinsic
def tile_fma(
    typing: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any,
    b_step: Any, depth: Any, c: Any, c_at: Any, c_row: Any, rows: Any, columns: Any,
    add: Any,
) -> Any:  # fmt: skip
    """c[i, j] (+)= sum over k of a[i, k] * b[k, j] for one tile, in registers.

    a[i, k] is a[a_at + i * a_row + k * a_step], b[k, j] is b[b_at + k * b_step + j],
    c[i, j] is c[c_at + i * c_row + j], for TILE.rows rows i, TILE.vectors vectors of
    columns j, and `depth` steps k. All columns are read and multiplied, and the last of
    `rows` rows in place of those that a tile has more; only the first `rows` rows and
    `columns` columns are written. With `add` false, c is overwritten.
    """
    return _tile(a, b, c, masked=False)


@intrinsic
def tile_fma_masked(
    typing: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any,
    b_step: Any, depth: Any, c: Any, c_at: Any, c_row: Any, rows: Any, columns: Any,
    add: Any,
) -> Any:  # fmt: skip
    """`tile_fma` that reads the first `columns` columns of b alone."""
    return _tile(a, b, c, masked=True)


def _tile(a: Any, b: Any, c: Any, masked: bool) -> Any:
    _check("tile_fma", (a, b, c))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit = _Emitter(context, builder, a)
        a_ptr = emit.data(a, args[0], args[1])
        b_ptr = emit.data(b, args[4], args[5])
        c_ptr = emit.data(c, args[8], args[9])
        sums = _outer_products(
            emit, _lines(emit, a_ptr, args[2], TILE.rows, args[11]), args[3], args[7],
            lambda k: builder.gep(b_ptr, [builder.mul(k, args[6])]),
            args[12] if masked else None,
        )  # fmt: skip
        _write_tile(emit, sums, c_ptr, args[10], args[11], args[12], args[13])
        return context.get_dummy_value()

    i = types.intp
    return types.void(a, i, i, i, b, i, i, i, c, i, i, i, i, types.boolean), code


@intrinsic
def tile_fma_at(
    typing: Any, a: Any, a_at: Any, b: Any, b_at: Any, offsets: Any, offset_at: Any,
    depth: Any, c: Any, c_at: Any, c_row: Any, rows: Any, columns: Any,
) -> Any:  # fmt: skip
    """`tile_fma` for rows of b that lie anywhere: at b_at + offsets[offset_at + k].

    a is packed: a[i, k] is a[a_at + k * TILE.rows + i]; `offsets` are int64.
    """
    _check("tile_fma_at", (a, b, c))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit = _Emitter(context, builder, a)
        a_ptr = emit.data(a, args[0], args[1])
        b_ptr = emit.data(b, args[2], args[3])
        table = emit.data(offsets, args[4], args[5])
        c_ptr = emit.data(c, args[7], args[8])
        rows = _lines(emit, a_ptr, emit.index(1), TILE.rows, emit.index(TILE.rows))
        sums = _outer_products(
            emit, rows, emit.index(TILE.rows), args[6],
            lambda k: builder.gep(b_ptr, [builder.load(builder.gep(table, [k]))]),
        )  # fmt: skip
        never = ir.Constant(ir.IntType(1), 0)
        _write_tile(emit, sums, c_ptr, args[9], args[10], args[11], never)
        return context.get_dummy_value()

    i = types.intp
    return types.void(a, i, b, i, offsets, i, i, c, i, i, i, i), code


def _lines(emit: _Emitter, pointer: Any, step: Any, wanted: int, there: Any) -> list:
    """Pointers to the first lines of a matrix; after those `there`, to the last."""
    builder, lines = emit.builder, []
    last = builder.sub(there, emit.index(1))
    for i in map(emit.index, range(wanted)):
        line = builder.select(builder.icmp_signed("<", i, last), i, last)
        lines.append(builder.gep(pointer, [builder.mul(step, line)]))
    return lines


def _outer_products(
    emit: _Emitter, rows: list[Any], a_step: Any, depth: Any, b_row_at: Any,
    columns: Any = None,
) -> list[Any]:  # fmt: skip
    """The sums over k of a[:, k] times b[k, :]; `b_row_at(k)` points to b[k, 0].

    `rows` point to a[i, 0]; of b the first `columns` are read, or a whole tile.
    """
    builder = emit.builder
    starts = [v * emit.lanes for v in range(TILE.vectors)]
    if columns is not None:
        masks = [emit.first_lanes(columns, start) for start in starts]

    def step(k: Any, sums: list[Any]) -> list[Any]:
        b_ptr = b_row_at(k)
        if columns is None:
            bs = [emit.load(b_ptr, emit.index(start)) for start in starts]
        else:
            bs = [
                emit.load_masked(b_ptr, emit.index(start), mask)
                for start, mask in zip(starts, masks)
            ]
        a_at = builder.mul(k, a_step)
        made = []
        for i in range(TILE.rows):
            left = emit.splat(builder.load(builder.gep(rows[i], [a_at])))
            for v in range(TILE.vectors):
                made.append(emit.fma(left, bs[v], sums[i * TILE.vectors + v]))
        return made

    return _loop(builder, depth, [emit.zero] * (TILE.rows * TILE.vectors), step)


def _write_tile(
    emit: _Emitter,
    sums: list[Any],
    c_ptr: Any,
    c_row: Any,
    rows: Any,
    cols: Any,
    add: Any,
) -> None:
    """Store the first rows and columns of a tile, or add them to what is there."""
    builder = emit.builder
    masks = [emit.first_lanes(cols, v * emit.lanes) for v in range(TILE.vectors)]
    added = [emit.select_mask(mask, add) for mask in masks]
    for i in range(TILE.rows):
        with builder.if_then(builder.icmp_signed("<", emit.index(i), rows)):
            row = builder.gep(c_ptr, [builder.mul(c_row, emit.index(i))])
            for v in range(TILE.vectors):
                at = emit.index(v * emit.lanes)
                old = emit.load_masked(row, at, added[v])
                total = builder.fadd(old, sums[i * TILE.vectors + v])
                emit.store_masked(total, row, at, masks[v])


@intrinsic
def tile_dot(
    typing: Any, a: Any, a_at: Any, a_row: Any, b: Any, b_at: Any, offsets: Any,
    offset_at: Any, length: Any, sums: Any, sums_at: Any, rows: Any,
) -> Any:  # fmt: skip
    """sums[i, j] += sum over p of a[i, p] * b[j, p] for one tile, p along the lanes.

    a[i, p] is a[a_at + i * a_row + p], b[j, p] is b[b_at + offsets[offset_at + j] + p],
    sums[i, j] is sums[sums_at + i * DOT.vectors + j], for DOT.rows rows i and
    DOT.vectors columns j; the last of `rows` rows is read in place of those that a tile
    has more. p runs to `length`, rounded up to whole vectors. The sums of a tile fill
    DOT_ROOM elements. `offsets` are int64.
    """
    _check("tile_dot", (a, b, sums))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit = _Emitter(context, builder, a)
        a_ptr = emit.data(a, args[0], args[1])
        table = emit.data(offsets, args[5], args[6])
        lefts = _lines(emit, a_ptr, args[2], DOT.rows, args[10])
        b_ptr = emit.data(b, args[3], args[4])
        rights = [
            builder.gep(b_ptr, [builder.load(builder.gep(table, [emit.index(j)]))])
            for j in range(DOT.vectors)
        ]
        made = emit.totals(_inner_products(emit, lefts, rights, args[7]))
        place = emit.data(sums, args[8], args[9])
        for v, total in enumerate(made):
            at = emit.index(v * emit.lanes)
            emit.store(builder.fadd(emit.load(place, at), total), place, at)
        return context.get_dummy_value()

    i = types.intp
    return types.void(a, i, i, b, i, offsets, i, i, sums, i, i), code


def _inner_products(
    emit: _Emitter, lefts: list[Any], rights: list[Any], length: Any
) -> list[Any]:
    """Vectors whose lanes add up to the sums over p of left[p] * right[p]."""
    builder = emit.builder
    rounded = builder.add(length, emit.index(emit.lanes - 1))
    vectors = builder.sdiv(rounded, emit.index(emit.lanes))

    def step(v: Any, sums: list[Any]) -> list[Any]:
        at = builder.mul(v, emit.index(emit.lanes))
        left = [emit.load(pointer, at) for pointer in lefts]
        made = list(sums)
        for j, pointer in enumerate(rights):
            right = emit.load(pointer, at)
            for i in range(DOT.rows):
                k = i * DOT.vectors + j
                made[k] = emit.fma(left[i], right, sums[k])
        return made

    return _loop(builder, vectors, [emit.zero] * (DOT.rows * DOT.vectors), step)


@intrinsic
def packed_dot(
    typing: Any, x: Any, x_at: Any, x_row: Any, rows: Any, packed: Any, at: Any,
    scale: Any, scale_at: Any, groups: Any, half: Any, out: Any, out_at: Any,
    out_row: Any,
) -> Any:  # fmt: skip
    """out[i] = sum over k of x[i, k] * w[k] for one to four rows i, w of four bits.

    x[i, k] is x[x_at + i * x_row + k], out[i] is out[out_at + i * out_row]; of two or
    three `rows`, the last is read twice or three times. w has `groups` of `half` bytes,
    as in `Backend.dequantize`, from packed[at] on, and their scales from
    scale[scale_at] on. `half` is a multiple of 16. A vector of bytes is widened once,
    and becomes two vectors of floats; a group's scale waits for the group's sums.
    """
    _check("packed_dot", (x, scale, out))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit = _Emitter(context, builder, x)
        x_ptr, place = emit.data(x, *args[:2]), emit.data(out, *args[10:12])
        weight = emit.data(packed, *args[4:6]), emit.data(scale, *args[6:8])

        def product(many: int) -> None:
            lines = _lines(emit, x_ptr, args[2], many, args[3])
            sums = _packed_sums(emit, lines, *weight, *args[8:10])
            totals = emit.totals(sums)
            for i in range(many):
                with builder.if_then(builder.icmp_signed("<", emit.index(i), args[3])):
                    vector, lane = totals[i // emit.lanes], emit.index(i % emit.lanes)
                    total = builder.extract_element(vector, lane)
                    at = builder.mul(args[12], emit.index(i))
                    builder.store(total, builder.gep(place, [at]))

        one = builder.icmp_signed("==", args[3], emit.index(1))
        with builder.if_else(one) as (alone, together):
            with alone:
                product(1)
            with together:
                product(4)
        return context.get_dummy_value()

    i = types.intp
    return types.void(x, i, i, i, packed, i, scale, i, i, i, out, i, i), code


def _packed_sums(
    emit: _Emitter, lines: list, bytes_: Any, scales: Any, groups: Any, half: Any
) -> list[Any]:
    """A vector for each line, whose lanes add up to its product with `packed`."""
    builder, lanes = emit.builder, emit.index(emit.lanes)
    narrow = ir.VectorType(ir.IntType(8), emit.lanes)
    wide = ir.VectorType(ir.IntType(32), emit.lanes)
    four, eight, last = (ir.Constant(wide, [n] * emit.lanes) for n in (4, 8, 15))
    vectors = builder.sdiv(half, lanes)

    def group(g: Any, sums: list[Any]) -> list[Any]:
        begin = builder.mul(g, half)

        def vector(v: Any, parts: list[Any]) -> list[Any]:
            at = builder.add(begin, builder.mul(v, lanes))
            place = builder.bitcast(builder.gep(bytes_, [at]), narrow.as_pointer())
            both = builder.sext(builder.load(place, align=1), wide)
            low = builder.sub(builder.and_(both, last), eight)
            low = builder.sitofp(low, emit.vector)
            high = builder.sitofp(builder.ashr(both, four), emit.vector)
            low_at = builder.add(begin, at)
            high_at = builder.add(low_at, half)
            made = []
            for line, part in zip(lines, parts):
                part = emit.fma(emit.load(line, low_at), low, part)
                made.append(emit.fma(emit.load(line, high_at), high, part))
            return made

        parts = _loop(builder, vectors, [emit.zero] * len(lines), vector)
        factor = emit.splat(builder.load(builder.gep(scales, [g])))
        return [emit.fma(factor, part, total) for part, total in zip(parts, sums)]

    return _loop(builder, groups, [emit.zero] * len(lines), group)


@intrinsic
def copy_line(
    typing: Any, source: Any, at: Any, begin: Any, end: Any, out: Any, out_at: Any,
    count: Any, shift: Any,
) -> Any:  # fmt: skip
    """out[out_at + i] = shift + (source[at + i] if begin <= i < end else 0), i < count.

    Short lines, as those of images, have few whole vectors; here the rest of a line is
    one vector too, with a mask for the lanes that count.
    """
    _check("copy_line", (source, out))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit = _Emitter(context, builder, source)
        given = emit.data(source, args[0], args[1])
        made = emit.data(out, args[4], args[5])
        rounded = builder.add(args[6], emit.index(emit.lanes - 1))
        vectors = builder.sdiv(rounded, emit.index(emit.lanes))
        shift_all = emit.splat(args[7])

        def step(v: Any, _: list[Any]) -> list[Any]:
            i = builder.mul(v, emit.index(emit.lanes))
            inside = builder.and_(
                emit.lanes_from(args[2], i),
                emit.first_lanes(builder.sub(args[3], i), 0),
            )
            value = builder.fadd(emit.load_masked(given, i, inside), shift_all)
            some = emit.first_lanes(builder.sub(args[6], i), 0)
            emit.store_masked(value, made, i, some)
            return []

        _loop(builder, vectors, [], step)
        return context.get_dummy_value()

    i = types.intp
    return types.void(source, i, i, i, out, i, i, source.dtype), code


@intrinsic
def transpose_lines(
    typing: Any, source: Any, at: Any, across: Any, lines: Any, out: Any, out_at: Any,
    step: Any, wide: Any,
) -> Any:  # fmt: skip
    """out[out_at + k * step + i] = source[at + i * across + k] for one vector of k.

    For i < min(wide, GROUP), and for as many k as a vector has lanes; 0 for i >= lines.

    Three rounds, each of which interleaves the first half of the registers with the
    second, move the three bits of i from the top of the element number to the bottom.
    Source of the idea: Stone, "Parallel processing with the perfect shuffle", 1971.
    """
    _check("transpose_lines", (source, out))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit = _Emitter(context, builder, source)
        given = emit.data(source, args[0], args[1])
        made = emit.data(out, args[4], args[5])
        every = emit.first_lanes(emit.index(emit.lanes), 0)
        vectors = []
        for i in range(GROUP):
            there = builder.icmp_signed("<", emit.index(i), args[3])
            line = builder.mul(args[2], emit.index(i))
            vectors.append(
                emit.load_masked(given, line, emit.select_mask(every, there))
            )
        for _ in range(3):
            half = GROUP // 2
            pairs = [
                emit.interleave(vectors[i], vectors[i + half]) for i in range(half)
            ]
            vectors = [vector for pair in pairs for vector in pair]
        for k in range(emit.lanes):
            row = builder.mul(args[6], emit.index(k))
            emit.store_part(vectors, k * GROUP, made, row, args[7])
        return context.get_dummy_value()

    i = types.intp
    return types.void(source, i, i, i, out, i, i, i), code


# -------------------------------------------------------------------- half precision


@intrinsic
def half_bits(typing: Any, x: Any) -> Any:
    """The bits of a float32 rounded to float16: F16C's `vcvtps2ph` for a vector."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), code


@intrinsic
def half_value(typing: Any, bits: Any) -> Any:
    """The float32 of a float16's bits: F16C's `vcvtph2ps`."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), code
