"""Elementwise operations on the GPU.

With this file one can compile a kernel for each scalar function. The functions are
those of `mojo_ops/operators.mojo`, which the CPU's kernels use as well; the loops are
`map` and `zip`, to which the function and the number of loads that a thread has under
way are parameters. The compiler makes a kernel of its own for each pair:

    relu_flat, exp_flat, ...      one vector a thread: for arrays up to a few million
    relu_large, exp_large, ...    several vectors a thread

What limits these kernels is memory; `cuda_ops/elementwise.py` says how many bytes must
be under way, and cuts the work in the same way.
"""

from max.gpu import block_idx, thread_idx
from std.utils.static_tuple import StaticTuple

from intrinsics import Floats, Vector
from operators import add, exp, gelu, mul, relu, tanh

comptime f32 = DType.float32
comptime THREADS = 128  # of a block
comptime VECTORS = 2  # of a thread, in large arrays
comptime STEP = 4 * THREADS  # numbers from one vector of a thread to its next
comptime Unary = def[T: DType, w: Int](SIMD[T, w]) thin -> SIMD[T, w]
comptime Binary = def[T: DType, w: Int](SIMD[T, w], SIMD[T, w]) thin -> SIMD[T, w]


@always_inline
def map[f: Unary, vectors: Int](a: Floats, out_: Floats, n: Int, aligned: Int):
    """Apply a function: out[i] = f(a[i]).

    # a [n] -> out [n]

    A block makes a tile of `vectors` * STEP elements; thread t makes elements 4 t to
    4 t + 3 of each STEP, so that a warp reads 512 bytes side by side. All loads come
    before the first store: the compiler may not move them there, since for all it knows
    `out` may be `a`. The last tile, and arrays that do not begin at a multiple of 16
    bytes (`aligned` is 0), are done element by element.

    The loops over `vectors` are unrolled at compile time, and `x` becomes registers.
    """
    var start = block_idx.x * STEP * vectors
    var end = min(start + STEP * vectors, n)
    if aligned != 0 and end - start == STEP * vectors:
        var first = start + 4 * thread_idx.x
        var x = StaticTuple[Vector, vectors](fill=0)
        comptime for v in range(vectors):
            x[v] = a.load(first + v * STEP)
        comptime for v in range(vectors):
            out_.store(first + v * STEP, f[f32, 4](x[v]))
    else:
        for i in range(start + thread_idx.x, end, THREADS):
            out_[i] = f[f32, 1](a[i])


@always_inline
def zip[
    f: Binary, vectors: Int
](a: Floats, b: Floats, out_: Floats, n: Int, aligned: Int):
    """Apply a function of two numbers: out[i] = f(a[i], b[i]); threads as `map`.

    # a [n], b [n] -> out [n]
    """
    var start = block_idx.x * STEP * vectors
    var end = min(start + STEP * vectors, n)
    if aligned != 0 and end - start == STEP * vectors:
        var first = start + 4 * thread_idx.x
        var x = StaticTuple[Vector, vectors](fill=0)
        var y = StaticTuple[Vector, vectors](fill=0)
        comptime for v in range(vectors):
            x[v] = a.load(first + v * STEP)
            y[v] = b.load(first + v * STEP)
        comptime for v in range(vectors):
            out_.store(first + v * STEP, f[f32, 4](x[v], y[v]))
    else:
        for i in range(start + thread_idx.x, end, THREADS):
            out_[i] = f[f32, 1](a[i], b[i])


# ------------------------------------------------------------- the kernels, by name


@export
def relu_flat(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[relu, 1](a, out_, n, aligned)


@export
def relu_large(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[relu, VECTORS](a, out_, n, aligned)


@export
def exp_flat(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[exp, 1](a, out_, n, aligned)


@export
def exp_large(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[exp, VECTORS](a, out_, n, aligned)


@export
def tanh_flat(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[tanh, 1](a, out_, n, aligned)


@export
def tanh_large(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[tanh, VECTORS](a, out_, n, aligned)


@export
def gelu_flat(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[gelu, 1](a, out_, n, aligned)


@export
def gelu_large(a: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    map[gelu, VECTORS](a, out_, n, aligned)


@export
def add_flat(a: Floats, b: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    zip[add, 1](a, b, out_, n, aligned)


@export
def add_large(a: Floats, b: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    zip[add, VECTORS](a, b, out_, n, aligned)


@export
def mul_flat(a: Floats, b: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    zip[mul, 1](a, b, out_, n, aligned)


@export
def mul_large(a: Floats, b: Floats, out_: Floats, n: Int, aligned: Int) abi("C"):
    zip[mul, VECTORS](a, b, out_, n, aligned)
