"""What kernels for a GPU are made of: memory, and sums of a block.

With this file a kernel can read and write float32 numbers on the GPU, one or four at a
time (`Floats`), copy them into shared memory while it computes (`Shared`, `start_copy`)
and add up what the threads of a block have (`block_sum`).

A kernel is an exported function without a result. It runs once for each thread of a
grid, and asks `max.gpu` which of them it is:

    @export
    def add_one(a: Floats, out_: Floats, n: Int) abi("C"):
        var i = block_idx.x * block_dim.x + thread_idx.x
        if i < n:
            out_[i] = a[i] + 1

Its parameters are addresses (`Floats`) and `Int`s: 8 bytes each, as `kernels.py` packs
them. Nothing checks them here: the launcher, in the Python file of the same name, has
done so.
"""

from max.gpu import WARP_SIZE, barrier, lane_id, warp_id
from max.gpu.memory import AddressSpace, async_copy, external_memory
from max.gpu.primitives import warp
from std.memory import stack_allocation

comptime Vector = SIMD[DType.float32, 4]  # 16 bytes: the most that a load can bring
comptime Shared = Pointer[
    Float32, MutUntrackedOrigin, address_space=AddressSpace.SHARED
]

comptime Global = Pointer[
    Float32, MutUntrackedOrigin, address_space=AddressSpace.GLOBAL
]


struct Floats(TrivialRegisterPassable):
    """float32 numbers side by side in the memory of the GPU."""

    var data: Pointer[Float32, MutUntrackedOrigin]

    @always_inline
    def __getitem__(self, i: Int) -> Float32:
        return self.data[unsafe_offset=i]

    @always_inline
    def __setitem__(self, i: Int, value: Float32):
        self.data[unsafe_offset=i] = value

    @always_inline
    def load(self, i: Int) -> Vector:
        """Numbers i to i + 3, of which the first is at a multiple of 16 bytes."""
        return self.data.unsafe_load[width=4, alignment=16](i)

    @always_inline
    def store(self, i: Int, value: Vector):
        """Write numbers i to i + 3; see `load`."""
        self.data.unsafe_store[alignment=16](i, value)


@always_inline
def shared_array[size: Int]() -> Shared:
    """Room for `size` numbers in the shared memory of the block."""
    return stack_allocation[
        size, Float32, address_space=AddressSpace.SHARED, alignment=16
    ]()


@always_inline
def load_shared(tile: Shared, i: Int) -> Vector:
    """Numbers i to i + 3 of shared memory; i is a multiple of 4."""
    return tile.unsafe_load[width=4, alignment=16](i)


@always_inline
def start_copy[width: Int](source: Floats, i: Int, tile: Shared, j: Int):
    """Start tile[j : j + width] <- source[i : i + width].

    The copy goes past the registers (`cp.async`), and the thread does not wait for it.
    """
    async_copy[4 * width](in_global_memory(source, i), tile.unsafe_offset(j))


@always_inline
def start_copy_or_zeros[
    width: Int
](source: Floats, i: Int, tile: Shared, j: Int, inside: Bool):
    """Do `start_copy`, or write zeros if not `inside`; i may be anything then."""
    async_copy[4 * width, fill=Float32(0)](
        in_global_memory(source, i),
        tile.unsafe_offset(j),
        Int32(4 * width) if inside else Int32(0),
    )


@always_inline
def in_global_memory(source: Floats, i: Int) -> Global:
    """The address of number i, with the memory it is in."""
    return source.data.unsafe_offset(i).unsafe_address_space_cast[AddressSpace.GLOBAL]()


@always_inline
def block_sum[threads: Int](value: Float32) -> Float32:
    """The sum of `value` over the threads of a block; only warp 0 gets it.

        warp 0   | 32 lanes: 5 shuffles | -> cells[0] |
        warp 1   | 32 lanes: 5 shuffles | -> cells[1] | -> warp 0: 3 shuffles -> sum
        ...                                  ...      |

    In a shuffle a lane reads a register of another lane: no shared memory, no barrier.
    One barrier then brings the warps together.

    Source: Luitjens, "Faster parallel reductions on Kepler", 2014.
    """
    comptime warps = threads // WARP_SIZE
    var cells = shared_array[warps]()
    var total = warp.sum(value)
    if lane_id() == 0:
        cells[unsafe_offset=warp_id()] = total
    barrier()
    total = cells[unsafe_offset=lane_id()] if lane_id() < warps else 0
    return warp.lane_group_sum[num_lanes=warps](total)
