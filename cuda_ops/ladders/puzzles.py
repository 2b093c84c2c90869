"""Ten kernels of a few lines: what a thread is, and how threads work together.

With this file one can read, and in a4w write, one kernel for each idea that the other
kernels are made of, by its name:

    add_ten          a thread for each element
    glue_digits      two inputs
    double_guarded   more threads than elements
    lower_triangle   threads in two dimensions
    times_table      one element for many threads
    every_second     many blocks
    turn_blocks      shared memory, and a barrier
    sum_of_three     a tile with a rim
    dot_product      many threads, one result
    count_values     many threads that write one place

All numbers are int64, and so small that one can check them by hand. A kernel writes
into its last array, `out` or `counts`; matrices are flat arrays, row by row.
"""

from __future__ import annotations

from numba import cuda, int64

from cuda_ops.runtime.launch import kernel

# Threads of a block, in a line and as a square. So few that one can draw them all;
# real kernels have 128 to 1,024.
THREADS = 8
SIDE = 4
# Cells of a block's threads, and two more. (The size of shared memory must be a name or
# a number: a sum would not compile.)
WITH_RIM = THREADS + 2


# BEGIN SOLUTION a4w.1
@kernel(examples=["int64[] int64[]"], threads=THREADS)
def add_ten(a, out):
    """out[t] = a[t] + 10: one block, with exactly as many threads as elements.

    # a [N] -> out [N]
    """
    t = cuda.threadIdx.x
    out[t] = a[t] + 10


# END SOLUTION a4w.1


# BEGIN SOLUTION a4w.2
@kernel(examples=["int64[] int64[] int64[]"], threads=THREADS)
def glue_digits(a, b, out):
    """out[t] = a[t] and b[t] as the digits of one number: 3 and 7 are 37.

    # a [N], b [N] -> out [N]; one block of N threads
    """
    t = cuda.threadIdx.x
    out[t] = 10 * a[t] + b[t]


# END SOLUTION a4w.2


# BEGIN SOLUTION a4w.3
@kernel(examples=["int64[] int64[]"], threads=THREADS)
def double_guarded(a, out):
    """out[t] = 2 a[t], by a block that always has THREADS threads.

    # a [N] -> out [N]; N <= THREADS
    """
    t = cuda.threadIdx.x
    if t < out.size:
        out[t] = 2 * a[t]


# END SOLUTION a4w.3


# BEGIN SOLUTION a4w.4
@kernel(examples=["int64[] int64[] int64 int64"], threads=SIDE * SIDE)
def lower_triangle(a, out, rows, cols):
    """a up to its diagonal, and zeros to the right of it.

    # a [rows, cols] -> out [rows, cols]; one block of SIDE x SIDE threads
    """
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < cols and y < rows:
        out[y * cols + x] = a[y * cols + x] if x <= y else 0


# END SOLUTION a4w.4


# BEGIN SOLUTION a4w.5
@kernel(examples=["int64[] int64[] int64[]"], threads=SIDE * SIDE)
def times_table(column, row, out):
    """out[y, x] = column[y] row[x]: each number of the two is used many times.

    # column [M], row [N] -> out [M, N]; one block of SIDE x SIDE threads
    """
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < row.size and y < column.size:
        out[y * row.size + x] = column[y] * row[x]


# END SOLUTION a4w.5


# BEGIN SOLUTION a4w.6
@kernel(examples=["int64[] int64[]"], threads=THREADS)
def every_second(a, out):
    """out[i] = a[2 i], by as many blocks of THREADS threads as out needs.

    # a [N] -> out [N / 2, rounded up]
    """
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < out.size:
        out[i] = a[2 * i]


# END SOLUTION a4w.6


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def turn_blocks(a, out):
    """Each block writes its THREADS elements in the opposite order, through `cells`.

    # a [N] -> out [N]; N is a multiple of THREADS
    """
    cells = cuda.shared.array(THREADS, int64)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * THREADS + t
    # BEGIN SOLUTION a4w.7
    cells[t] = a[i]
    cuda.syncthreads()
    out[i] = cells[THREADS - 1 - t]
    # END SOLUTION a4w.7


@kernel(examples=["int64[] int64[]"], threads=THREADS)
def sum_of_three(a, out):
    """out[i] = a[i] + a[i + 1] + a[i + 2], with each block's part of a in `cells`.

    # a [N + 2] -> out [N]

    A block makes THREADS sums of THREADS + 2 elements, which are its own and the first
    two of the next block.
    """
    cells = cuda.shared.array(WITH_RIM, int64)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * THREADS + t
    # BEGIN SOLUTION a4w.8
    if i < a.size:
        cells[t] = a[i]
    if t < 2 and i + THREADS < a.size:
        cells[t + THREADS] = a[i + THREADS]
    cuda.syncthreads()
    if i < out.size:
        out[i] = cells[t] + cells[t + 1] + cells[t + 2]
    # END SOLUTION a4w.8


@kernel(examples=["int64[] int64[] int64[]"], threads=THREADS)
def dot_product(a, b, out):
    """out[0] = the sum of all a[t] b[t]: all threads multiply, one of them adds.

    # a [N], b [N] -> out [1]; N <= THREADS; one block of THREADS threads
    """
    cells = cuda.shared.array(THREADS, int64)
    t = cuda.threadIdx.x
    # BEGIN SOLUTION a4w.9
    cells[t] = a[t] * b[t] if t < a.size else 0
    cuda.syncthreads()
    if t == 0:
        total = 0
        for k in range(THREADS):
            total += cells[k]
        out[0] = total
    # END SOLUTION a4w.9


# BEGIN SOLUTION a4w.10
@kernel(examples=["int64[] int64[]"], threads=THREADS)
def count_values(a, counts):
    """counts[v] += 1 for each element v of a; many blocks, a thread for each element.

    # a [N], each from 0 to M - 1 -> counts [M], which begins with zeros
    """
    i = cuda.grid(1)
    if i < a.size:
        cuda.atomic.add(counts, a[i], 1)


# END SOLUTION a4w.10
