"""Filling shared memory while others compute: tiles of matrices, 16 bytes at a time.

With this file a kernel can copy tiles of an operand into shared memory (`copier`), past
the registers (`cp.async`) or, on older chips, through them, and wait for copies that
are under way (`fences`, `arrival`). Numbers outside of a matrix become zeros.

Source: "PTX ISA", on cp.async.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import cuda, int64

from cuda_ops.block import llvm
from cuda_ops.block.llvm import GLOBAL, written
from cuda_ops.block.tiles import VECTOR_BYTES, Functions, inlined
from cuda_ops.simulator import SIMULATED, flights, watch

if not SIMULATED:
    from llvmlite import ir
    from numba.cuda import types


watch.STAND_INS.add(__name__)


class Copy(NamedTuple):
    """How a block's threads copy one tile of an operand into shared memory.

    The tile is `wide` rows of a (or columns of b) and `depth` steps of k. It lies there
    in lines: a line holds one k (or, with `k_fast`, one row) and the next line starts
    `pitch` elements behind it.

    Attributes:
        depth, wide, pitch: see above.
        threads: of the block.
        elements: how many neighbours one instruction copies: 1, or 16 bytes full.
        asynchronous: with `cp.async` (from compute capability 8.0 on).
        k_fast: whether k runs along the lines.
        swizzle: exchange the 16-byte vectors of each line, so that vector v of line r
            is at v ^ r (of r as many bits as there are vectors). Loads of one vector of
            many lines then meet different banks, without a gap between the lines.
            Lines have `depth` elements: those of more lie in parts of so many, and a
            part of all lines comes before the next part (`swizzled`).
    """

    depth: int
    wide: int
    pitch: int
    threads: int
    elements: int
    asynchronous: bool
    k_fast: bool
    swizzle: bool = False

    @property
    def elements_shared(self) -> int:
        """How much shared memory the tile takes."""
        return self.pitch * (self.wide if self.k_fast else self.depth)

    @property
    def strides(self) -> tuple[int, int]:
        """From one row to the next and from one k to the next in shared memory."""
        return (self.pitch, 1) if self.k_fast else (1, self.pitch)


def swizzled(line: Any, i: Any, depth: int, vector: int = 4, lines: int = 1) -> Any:
    """Where element i of a line lies, from its first part on, with `Copy.swizzle`.

    `vector` elements are 16 bytes, and there are `lines` lines.
    """
    part, i = i // depth * depth * lines, i % depth
    return part + ((i // vector) ^ (line % (depth // vector))) * vector + i % vector


def unit_of(size: int) -> int:
    """From one address to the next: bytes on the chip, elements in the simulator."""
    return 1 if SIMULATED else size


def copier(copy: Copy, size: int) -> Functions:
    """The functions begin, load and load_first, which copy tiles to shared memory.

        start, walk = begin(source, at, stride, k_stride)
        load(shared, to, source, start, walk, wide_left):

            for i in range(wide), k in range(depth):    if i < wide_left:
                shared[to + k * pitch + i] =      (with k_fast: to + i * pitch + k)
                    source[at + i * stride + k * k_stride]

        load_first(shared, to, source, start, walk, wide_left, k_left):

            the same for the first k_left steps, and zeros for the others

    Rows outside of the matrix (from wide_left on) are left alone: what is there makes
    outputs that nobody stores. Steps outside would be a part of every sum. So the first
    tile takes what the others leave over, and only that one has to look at k.

    `start` is the address of this thread's first element. To go on by d elements, add
    d * `unit_of(size)` (`size` bytes an element). All that a copy costs besides the
    copying is then one addition; products of 64-bit numbers would cost more than that.
    """
    elements, pitch, k_fast = copy.elements, copy.pitch, copy.k_fast
    lines, line = (copy.wide, copy.depth) if k_fast else (copy.depth, copy.wide)
    per_line, unit = line // elements, unit_of(size)
    if copy.threads % per_line or (lines * per_line) % copy.threads:
        raise ValueError(f"copier: {copy.threads} threads cannot share {copy} evenly")
    jump = copy.threads // per_line
    swizzle, depth, vector = copy.swizzle, copy.depth, VECTOR_BYTES // size
    if swizzle and (jump % (depth // vector) or line % depth):
        raise ValueError(f"copier: {copy.threads} threads cannot swizzle {copy}")
    pitch = depth if swizzle else pitch
    place = inlined(swizzled)
    w_jump, k_jump = (jump, 0) if k_fast else (0, jump)

    def begin(source, at, stride, k_stride):
        n = int64(cuda.threadIdx.x)
        slow, fast = n // per_line, n % per_line * elements
        w, k = (slow, fast) if k_fast else (fast, slow)
        start = address_of(source, at + w * stride + k * k_stride)
        go = (w_jump * stride + k_jump * k_stride) * unit
        # The exchange is the same for all lines of a thread: they are `jump` apart.
        if swizzle:
            fast = place(slow, fast, depth, vector, lines)
        return start, (slow * pitch + fast, go, w, k)

    load, load_first = _make_loads(copy, w_jump, k_jump, jump * pitch)
    return inlined(begin), load, load_first


def _make_loads(copy: Copy, w_jump: int, k_jump: int, to_jump: int) -> Functions:
    """`load` and `load_first` of `copier`."""
    count = copy.wide * copy.depth // copy.elements // copy.threads
    make = copy_async if copy.asynchronous else copy_now
    move, move_or_clear = make(copy.elements, False), make(copy.elements, True)

    def load(shared, to, source, start, walk, wide_left):
        first, go, w, _ = walk
        for i in range(count):
            inside = w + i * w_jump < wide_left
            move(shared, to + first + i * to_jump, source, start, inside)
            start += go

    def load_first(shared, to, source, start, walk, wide_left, k_left):
        first, go, w, k = walk
        for i in range(count):
            inside = w + i * w_jump < wide_left and k + i * k_jump < k_left
            at = to + first + i * to_jump
            move_or_clear(shared, at, source, start, inside)
            start += go

    return inlined(load), inlined(load_first)


def copy_async(elements: int, clear: bool) -> Callable:
    """move(shared, at, source, address, inside): start to copy `elements` neighbours.

    Where they are not inside, nothing is read, and zeros are stored if `clear`. The
    copy goes past the registers; it has arrived after a `wait` of `fences`.
    """

    def write(builder: Any, to: Any, source: Any, inside: Any) -> None:
        total = elements * llvm.size_of(to.type.pointee)
        kind = "cg" if total == VECTOR_BYTES else "ca"
        copy = f"cp.async.{kind}.shared.global [$0], [$1], {total}"
        # `cp.async` itself writes zeros for the bytes that it is not to read.
        flag = ir.Constant(ir.IntType(32), total)
        flag = builder.select(inside, flag, ir.Constant(ir.IntType(32), 0))
        text = f"{copy}, $2;"
        if not clear:
            text = f"{{ .reg .pred p; setp.ne.b32 p, $2, 0; @p {copy}; }}"
        args = [llvm.shared_address(builder, to), source, flag]
        llvm.assembly(builder, text, ir.VoidType(), "r,l,r,~{memory}", args)

    return _make_move(elements, clear, write, flights.start_copy)


def copy_now(elements: int, clear: bool) -> Callable:
    """`copy_async` for chips without it: load into registers, and store."""

    def write(builder: Any, to: Any, source: Any, inside: Any) -> None:
        with builder.if_else(inside) as (then, otherwise):
            with then:
                llvm.store(builder, llvm.load(builder, source, 0, elements), to)
            with otherwise:
                if clear:
                    zero = ir.Constant(to.type.pointee, None)
                    llvm.store(builder, [zero] * elements, to)

    return _make_move(elements, clear, write, watch.load_and_store)


def _make_move(
    elements: int, clear: bool, write: Callable, emulate: Callable
) -> Callable:
    if SIMULATED:

        def emulated(shared, at, source, address, inside):
            if inside:
                emulate(shared, at, source, address, elements, sys._getframe())
            elif clear:
                emulate(shared, at, None, 0, elements, sys._getframe())

        return emulated

    def signature(shared: Any, at: Any, source: Any, address: Any, inside: Any) -> Any:
        return types.void(shared, types.int64, source, types.int64, types.boolean)

    @written(signature)
    def move(
        builder: Any, shared: Any, at: Any, source: Any, address: Any, inside: Any
    ) -> None:
        to = builder.gep(shared, [at])
        kind = ir.PointerType(to.type.pointee, GLOBAL)
        write(builder, to, builder.inttoptr(address, kind), inside)

    return move


def _make_address_of() -> Callable:
    """address_of(array, i): where element i is, as a number."""
    if SIMULATED:
        return lambda array, i: i

    @written(lambda array, i: types.int64(array, types.int64), GLOBAL)
    def address_of(builder: Any, array: Any, i: Any) -> Any:
        return builder.ptrtoint(builder.gep(array, [i]), ir.IntType(64))

    return address_of


address_of = _make_address_of()


def fences(asynchronous: bool, pending: int) -> Functions:
    """close() ends a group of copies; wait() returns when all but the newest `pending`
    groups of this thread have arrived, wait_all() when all have."""
    if not asynchronous:
        return (line_of(""),) * 3
    close = flights.close if SIMULATED else line_of("cp.async.commit_group;")
    return close, _wait_of(pending), _wait_of(0)


def arrival(pending: int) -> Callable:
    """arrive(): `wait` of `fences`, for tiles that tensor cores fetch by themselves.

    They reach shared memory on another way (the asynchronous proxy), which sees a
    thread's copies after a fence of that thread and a barrier.
    """
    return _wait_of(pending, " fence.proxy.async.shared::cta;")


def _wait_of(pending: int, fence: str = "") -> Callable:
    """wait(): until all but the newest `pending` groups have arrived; then a fence."""
    if SIMULATED:
        return lambda: flights.wait(pending, sys._getframe())
    return line_of(f"cp.async.wait_group {pending};{fence}")


def line_of(text: str) -> Callable:
    """fn(): a line of PTX; nothing where there is none, or in the simulator."""

    def nothing():
        pass

    if SIMULATED or not text:
        return inlined(nothing)

    @written(lambda: types.void())
    def line(builder: Any) -> None:
        llvm.assembly(builder, text, ir.VoidType(), "~{memory}", [])

    return line
