"""Loops over one line of numbers, a vector at a time.

With this file a kernel can walk along a line of n elements in steps of w, the width of
a vector, without a second loop for the end: the last vector is loaded and stored in
part.

    for i in range(0, n, w):
        store_part(z, i, n, 2 * load_part[w](x, i, n, 0))

It holds the loops that more than one family needs (`maximum_of`, `sum_of`), and says
how many lines make one task (`lines_per_task`).
"""

from std.math import iota
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load, masked_store
from std.utils.numerics import inf

from bridge import Buffer

comptime PER_TASK = 4096  # elements of a task, at least; tens of microseconds of work


@always_inline
def load_part[
    T: DType, //, w: Int
](x: Buffer[T], i: Int, n: Int, other: Scalar[T]) -> SIMD[T, w]:
    """Elements i to i + w - 1; `other` from n on, where nothing is read."""
    if i + w <= n:
        return x.load[w](i)
    var mask = iota[DType.int32, w]().lt(Int32(n - i))
    return masked_load[w](x.at(i).data, mask, SIMD[T, w](other))


@always_inline
def store_part[T: DType, w: Int, //](z: Buffer[T], i: Int, n: Int, value: SIMD[T, w]):
    """Write elements i to i + w - 1, but none from n on."""
    if i + w <= n:
        z.store[w](i, value)
        return
    var mask = iota[DType.int32, w]().lt(Int32(n - i))
    masked_store[w](value, z.at(i).data, mask)


@always_inline
def maximum_of[T: DType](x: Buffer[T], n: Int) -> Scalar[T]:
    """The largest of n numbers; a NaN is passed over."""
    comptime w = simd_width_of[T]()
    var top = SIMD[T, w](-inf[T]())
    for i in range(0, n, w):
        var value = load_part[w](x, i, n, -inf[T]())
        top = value.gt(top).select(value, top)
    return top.reduce_max()


@always_inline
def sum_of[T: DType](x: Buffer[T], n: Int) -> Scalar[T]:
    """The sum of n numbers, in w sums side by side."""
    comptime w = simd_width_of[T]()
    var total = SIMD[T, w](0)
    for i in range(0, n, w):
        total += load_part[w](x, i, n, 0)
    return total.reduce_add()


@always_inline
def fill[T: DType](z: Buffer[T], n: Int, value: Scalar[T]):
    """z[i] = value for i < n"""
    comptime w = simd_width_of[T]()
    for i in range(0, n, w):
        store_part(z, i, n, SIMD[T, w](value))


@always_inline
def copy_block[
    T: DType
](
    x: Buffer[T], x_step: Int, z: Buffer[T], z_step: Int, rows: Int, n: Int,
    shift: Scalar[T],
):
    """z[i * z_step + j] = x[i * x_step + j] + shift for i < rows, j < n

    The loop over rows is the inner one: which lanes of the last vector of a row count
    is then found out once for all rows.
    """
    comptime w = simd_width_of[T]()
    for j in range(0, n, w):
        var mask = iota[DType.int32, w]().lt(Int32(n - j))
        for i in range(rows):
            var from_ = x.at(i * x_step + j).data
            var value = masked_load[w](from_, mask, SIMD[T, w](0))
            masked_store[w](value + shift, z.at(i * z_step + j).data, mask)


@always_inline
def woven[T: DType, w: Int](x: Buffer[T], across: Int) -> SIMD[T, 8 * w]:
    """Eight lines of w steps, step by step: x0[0] x1[0] ... x7[0] x0[1] ...

    Interleaving two vectors gives the elements of both in turns; of eight lines, three
    rounds of it make one vector in which a step of all lines lies together.
    """
    var even = x.load[w](0).interleave(x.load[w](4 * across))
    var even_2 = x.load[w](2 * across).interleave(x.load[w](6 * across))
    var odd = x.load[w](across).interleave(x.load[w](5 * across))
    var odd_2 = x.load[w](3 * across).interleave(x.load[w](7 * across))
    var out_ = even.interleave(even_2).interleave(odd.interleave(odd_2))
    return rebind[SIMD[T, 8 * w]](out_)


@always_inline
def lines_per_task(length: Int) -> Int:
    """How many lines of this length make one task."""
    return max(1, PER_TASK // max(1, length))
